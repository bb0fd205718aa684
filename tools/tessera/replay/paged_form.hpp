// What a kind of layers asks of a server at each step: the operation that writes new tokens into
// pages and attends over them, its tensors, and where a token lies in a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../model_description.hpp"

namespace tessera::tool {

/// A tensor with a row for each token of a step.
struct token_tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< behind the axis of the tokens

  std::int64_t elements() const;
};

/// Where a row of new tokens lies in a slot of a page.
struct slot_part {
  std::size_t tensor = 0;                            ///< among the new tokens
  std::int64_t column = 0;                           ///< of the slot
  std::optional<std::size_t> scales = std::nullopt;  ///< the pool that holds its scales by head
};

/// A pool of pages, whose slots lie one behind the other.
struct pool_form {
  std::string name;
  std::vector<std::int64_t> page;  ///< extents of a page
  std::int64_t columns = 0;        ///< elements of a slot
  std::vector<slot_part> parts;    ///< none: the pool holds scales
  dtype type = dtype::none;        ///< none: that of keys and values
};

struct paged_form {
  std::string operation;
  std::string options;  ///< as fields of a problem
  std::vector<token_tensor> queries, fresh;
  token_tensor out;
  std::vector<pool_form> pools;
  std::string table, lengths, count;  ///< names of lists; rows of a sequence are cu_seqlens_q
  std::int64_t counts = 1;            ///< entries of `count`, the last one is that of the sequences
  std::vector<std::int64_t> sinks;    ///< extents; empty: there are none
};

/// What a pool is asked to be.
struct pool_wishes {
  dtype type = dtype::none;   ///< of keys and values in pages; none: that of the model
  bool token_scales = false;  ///< with a scale for each token and head
};

/// The operations of a kind of layers; none where no operation over pages serves it.
std::optional<paged_form> paged_form_of(const layer_kind& kind, dtype type, std::int64_t page_size,
                                        bool token_scales);

}  // namespace tessera::tool
