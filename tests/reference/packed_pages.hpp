// A batch of sequences with keys in pages as the packed attention call that it stands for: new
// tokens written, the keys and values of each sequence in use gathered from their pages.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/ragged_page_args.hpp>
#include <tessera/families/attention/unified_args.hpp>

#include "elements.hpp"
#include "pool_elements.hpp"
#include "store.hpp"

namespace tessera::reference {

/// The tensors and options of any operation over such batches. Pools are seen as [P,T,Hkv,D],
/// whatever their layout.
struct paged_batch {
  tensor_view q, k_pages, v_pages, block_table, seqlens_k, cu_seqlens_q, num_seqs, k_new, v_new,
      sinks, alibi_slopes, qq_bias, k_scales, v_scales, k_token_scales, v_token_scales, out, lse;
  flash_attention_options options{};
  std::optional<double> q_scale;
  double v_scale = 1;
  std::int64_t columns = 0;  ///< of a key in the pool, those behind the head dim included
  std::int64_t heads = 0;    ///< of a slot of the pool, those that no channel has included

  static paged_batch of(const unified_attention_args& args,
                        const unified_attention_options& options);
  static paged_batch of(const ragged_page_args& args, const ragged_page_options& options);

  std::int64_t page_size() const { return k_pages.extent[1]; }
  std::int64_t sequences() const;  ///< in use
  std::int64_t length(std::int64_t n) const { return entry(seqlens_k, n); }
  std::int64_t row_begin(std::int64_t n) const { return entry(cu_seqlens_q, n); }
  std::int64_t rows(std::int64_t n) const { return row_begin(n + 1) - row_begin(n); }
  /// The page of key j of sequence n.
  std::int64_t page(std::int64_t n, std::int64_t j) const;
  /// Elements from a pool's first to slot (key j, head) of sequence n.
  std::int64_t offset(const tensor_view& pool, std::int64_t n, std::int64_t j,
                      std::int64_t head) const;

  static std::int64_t entry(const tensor_view& list, std::int64_t at) {
    return static_cast<std::int64_t>(read(list, at * list.stride[0]));
  }
};

/// ALiBi and the bias among new tokens, as hooks of the definition; positions are those of keys
/// behind the sequence's first row.
struct position_hooks {
  const paged_batch* batch = nullptr;

  double bias(std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t behind = j - (batch->length(n) - batch->rows(n));
    double added = 0;
    if (batch->alibi_slopes.present()) {
      added += read(batch->alibi_slopes, h * batch->alibi_slopes.stride[0]) *
               static_cast<double>(behind);
    }
    const tensor_view& among = batch->qq_bias;
    const bool inside =
        among.present() && i < among.extent[0] && behind >= 0 && behind < among.extent[1];
    return inside ? added + read(among, i * among.stride[0] + behind * among.stride[1]) : added;
  }
  template <class Real>
  Real logits(Real s, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return s + static_cast<Real>(bias(n, h, i, j));
  }
  bool visible(std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return bias(n, h, i, j) != -HUGE_VAL;
  }
};

enum class gathering { keys_and_values, nothing };

/// The packed call of tensors in host memory, or its shapes. Not copied: it points into itself.
class packed_pages {
 public:
  /// `as_stored`: products with the scales of tokens are rounded, as rows may do.
  explicit packed_pages(const paged_batch& batch, gathering what = gathering::keys_and_values,
                        bool as_stored = false);
  packed_pages(const packed_pages&) = delete;
  packed_pages& operator=(const packed_pages&) = delete;

  const flash_attention_args& args() const noexcept { return args_; }
  const flash_attention_options& options() const noexcept { return options_; }
  position_hooks hooks() const noexcept { return {&batch_}; }

 private:
  void count_keys();
  void divide_queries();
  struct pool_tensors {
    const tensor_view& pool;
    const tensor_view& fresh;
    const tensor_view& scales;        ///< of heads
    const tensor_view& token_scales;  ///< of slots
  };
  void gather(const pool_tensors& from, tensor_view& tokens, std::vector<std::byte>& memory) const;

  paged_batch batch_;
  bool as_stored_;
  flash_attention_args args_;
  flash_attention_options options_;
  std::vector<std::int32_t> cu_seqlens_q_, cu_seqlens_k_;
  std::vector<std::byte> queries_, keys_, values_;
};

}  // namespace tessera::reference
