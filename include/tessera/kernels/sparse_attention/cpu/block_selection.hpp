// Which blocks a token looks at: its own, and those whose means get the most attention of its heads
// together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/softmax_block.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Selections of the tokens of a list, [tokens, slots]; -1 behind the last.
template <class Isa>
class block_selection {
  using vec = prim::simd<Isa>;

 public:
  block_selection(const native_sparse_rows<Isa>& rows, prim::float_carver& memory)
      : rows_(rows),
        blocks_(rows.most_blocks()),
        slots_(std::min(rows.args().block_count, blocks_)),
        stride_(prim::padded<Isa>(blocks_) + block_keys),
        importance_(memory.take(rows.tokens_of_list() * stride_)),
        order_(memory.take<std::int32_t>(blocks_)),
        numbers_(memory.take<std::int32_t>(rows.tokens_of_list() * slots_)) {}

  void clear(std::int64_t tokens) { std::fill(importance_, importance_ + tokens * stride_, 0.0f); }

  /// Adds the weights of the rows of a list, whose queries are loaded and whose `lse` over means
  /// of complete blocks are known.
  void add(const token_sequence& tokens, std::int64_t kv_head, const row_list& list,
           const float* lse, softmax_block<Isa>& block) {
    const std::int64_t first_token = list.token[0];
    rows_.for_each_tile_of_means(tokens, kv_head, list, block, [&](std::int64_t first) {
      for (int r = 0; r < list.count; ++r) {
        const auto shift = vec::broadcast(prim::finite_maximum(lse[r]));
        float* const sums = importance_ + (list.token[r] - first_token) * stride_ + first;
        for (int c = 0; c < block.columns(); c += vec::width) {
          const auto weight = prim::exp_of<Isa>(vec::sub(vec::load(block.score_row(r) + c), shift));
          vec::store(sums + c, vec::add(vec::load(sums + c), weight));
        }
      }
    });
  }

  /// Selects for token `first` + `at` of the list: its own block, then those that are selected
  /// anyway, then by weight, lower numbers first where it is the same. NaN has no weight.
  void select(std::int64_t first, std::int64_t at) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const native_sparse_kernel_args& args = rows_.args();
    const std::int64_t own = (first + at) / args.block_size;
    const std::int64_t others = std::min(slots_ - 1, own);
    float* const weights = importance_ + at * stride_;
    std::int32_t* const to = numbers_ + at * slots_;
    for (std::int32_t block = 0; block < own; ++block) {
      order_[block] = block;
      if (!(weights[block] >= 0.0f)) weights[block] = -1.0f;
      if (block < args.first_blocks || own - block < args.last_blocks) weights[block] = infinity;
    }
    std::partial_sort(order_, order_ + others, order_ + own, [&](std::int32_t a, std::int32_t b) {
      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
    });
    std::copy(order_, order_ + others, to);
    to[others] = static_cast<std::int32_t>(own);
    std::sort(to, to + others);
    std::fill(to + others + 1, to + slots_, -1);
  }

  /// Calls body(number) for the blocks of token `at` of the list.
  template <class Body>
  void for_each(std::int64_t at, const Body& body) const {
    const std::int32_t* const numbers = numbers_ + at * slots_;
    for (std::int64_t s = 0; s < slots_ && numbers[s] >= 0; ++s) body(std::int64_t{numbers[s]});
  }
  std::int64_t slots() const { return slots_; }
  const std::int32_t* numbers(std::int64_t at) const { return numbers_ + at * slots_; }

 private:
  const native_sparse_rows<Isa>& rows_;
  std::int64_t blocks_, slots_, stride_;
  float* importance_;
  std::int32_t *order_, *numbers_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
