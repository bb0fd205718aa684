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
  std::size_t tensor = 0;   ///< among the new tokens
  std::int64_t column = 0;  ///< of the slot
};

/// A pool of pages, whose slots lie one behind the other.
struct pool_form {
  std::string name;
  std::vector<std::int64_t> page;  ///< extents of a page
  std::int64_t columns = 0;        ///< elements of a slot
  std::vector<slot_part> parts;
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

/// The operation of a kind of layers; none where no operation over pages serves it.
std::optional<paged_form> paged_form_of(const layer_kind& kind, dtype type, std::int64_t page_size);

}  // namespace tessera::tool
