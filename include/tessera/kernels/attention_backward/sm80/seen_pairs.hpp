// Which pairs of a tile of queries and the keys of a block are seen, where not all of them are: a
// bit for each of those that a lane has.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// Found before the products of a tile, in loops that are not unrolled: what they take is free when
/// accumulators come.
template <class Tiles>
class seen_pairs {
 public:
  static __device__ __forceinline__ seen_pairs all() {
    seen_pairs pairs;
#pragma unroll
    for (std::uint32_t& word : pairs.words_) word = ~0u;
    return pairs;
  }
  /// Those that lengths, diagonal, window, segments and the mask functor show. `first`: a lane's
  /// first query, without the rows below, and its first key.
  template <class Hooks>
  static __device__ __forceinline__ seen_pairs of(const hooked_args<Hooks>& args,
                                                  const key_block& own, const score_place& first) {
    seen_pairs pairs;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const int first_row = w * rows_of_word, left = rows - first_row;
      std::uint32_t bits = 0;
#pragma unroll 1
      for (int r = 0; r < (left < rows_of_word ? left : rows_of_word); ++r) {
        const int row = first_row + r;
        score_place at = first;
        at.query += row / 2 * 16 + row % 2 * 8;
        bits |= of_row(args, own, at) << (r * row_bits);
      }
      pairs.words_[w] = bits;
    }
    return pairs;
  }

  /// Element e of the accumulator of 16 rows and 8 keys, numbers m and n.
  __device__ __forceinline__ bool holds(int m, int n, int e) const {
    const int row = m * 2 + e / 2;
    return (words_[row / rows_of_word] >> (row % rows_of_word * row_bits + n * 2 + e % 2) & 1u) !=
           0;
  }

 private:
  static constexpr int key_tiles = Tiles::score_keys / 8, rows = Tiles::score_rows / 8;
  static constexpr int row_bits = 2 * key_tiles, rows_of_word = 32 / row_bits;
  static constexpr int words = (rows + rows_of_word - 1) / rows_of_word;

  template <class Hooks>
  static __device__ __forceinline__ std::uint32_t of_row(const hooked_args<Hooks>& args,
                                                         const key_block& own, score_place at) {
    const attention_kernel_args& of = args.call.forward;
    const std::int64_t first = at.key;
    if (at.query >= own.block.seq.q_len) return 0;
    const seen_part seen = seen_part::of(own.visible.keys_of(at.query), first, Tiles::own);
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < row_bits; ++i) bits |= seen.holds(i / 2 * 8 + i % 2) ? 1u << i : 0u;
    if (!Hooks::has_mask && of.q_segments.data == nullptr) return bits;
#pragma unroll 1
    for (std::uint32_t left = bits; left != 0; left &= left - 1) {
      const int i = __ffs(static_cast<int>(left)) - 1;
      at.key = first + i / 2 * 8 + i % 2;
      bool shown = of.q_segments.data == nullptr || same_segment(of, at);
      if constexpr (Hooks::has_mask) shown = shown && args.hooks.mask(at.seen_by_functors());
      if (!shown) bits &= ~(1u << i);
    }
    return bits;
  }

  std::uint32_t words_[words];
};

}  // namespace tessera::kernels::attention_backward::sm80
