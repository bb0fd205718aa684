// Tiles of the kernel of all gradients, and which part of each product a warp has.
//
// Bytes that leave shared memory for a product of 16x8x16, of a warp with a tile of M x N:
// 256 (M + N) / (M N / 8). The matrix unit takes 1.6 clocks for one, shared memory gives 128 bytes
// a clock: 32x32 (256 bytes) and 64x64 (128 bytes) keep pace, 16x64 (320) did not.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/block.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// `Queries` x `Own` keys at a time. Half of the warps sum d_v, half d_k: 64 keys each and a part
/// of the columns. `ScoreKeyWarps` warps share the keys of scores, `SumColumnWarps` the columns of
/// d_q.
template <int Width, int ValueWidth, int Queries, int Own, int Warps, int Stages, int Blocks,
          int ScoreKeyWarps, int SumColumnWarps>
struct gradient_tiles {
  static constexpr int queries = Queries, own = Own, stages = Stages, blocks = Blocks;
  static constexpr int threads = Warps * 32;
  static constexpr int block_threads = threads;
  /// Tiles of which all is seen have code of their own, where registers are left for two.
  static constexpr bool splits_code = Width <= 128;
  static constexpr bool finds_sequences = Width <= 128;  ///< see goes_through_slots
  static constexpr int turns_apart = 1;                  ///< see section_of
  static constexpr int width = Width, value_width = ValueWidth;
  using keys = prim::cuda::shared_tile<Own, Width>;
  using values = prim::cuda::shared_tile<Own, ValueWidth>;
  using rows = prim::cuda::shared_tile<Queries, Width>;
  using out_rows = prim::cuda::shared_tile<Queries, ValueWidth>;
  using scores = prim::cuda::shared_tile<Queries, Own>;

  /// What is known of the queries of a tile, in the order of its rows.
  struct statistics {
    float shift[Queries], correction[Queries];  ///< shift to the base 2
  };

  static constexpr int score_key_warps = ScoreKeyWarps, score_keys = Own / ScoreKeyWarps;
  static constexpr int score_rows = Queries / (Warps / ScoreKeyWarps);
  static constexpr int sum_column_warps = SumColumnWarps, sum_columns = Width / SumColumnWarps;
  static constexpr int sum_rows = Queries / (Warps / SumColumnWarps);
  /// In turns, d_q of a tile is computed before its turn is waited for, where registers are left:
  /// columns within a line of 64 need one address.
  static constexpr bool waits_late = Width <= 128 && 64 % sum_columns == 0;
  static constexpr int half_warps = Warps / 2, column_parts = half_warps / (Own / 64);
  static constexpr int key_columns = Width / column_parts,
                       value_columns = ValueWidth / column_parts;
  static constexpr int part_columns = std::max(key_columns, value_columns);
  static_assert(score_keys % 16 == 0 && score_rows % 16 == 0 && sum_columns % 16 == 0 &&
                sum_rows % 16 == 0 && key_columns % 16 == 0 && value_columns % 16 == 0);

  static constexpr int stage_bytes = rows::bytes + out_rows::bytes;
  static constexpr int statistics_at =
      keys::bytes + values::bytes + 2 * scores::bytes + Stages * stage_bytes;
  static constexpr int shared_bytes = statistics_at + static_cast<int>(sizeof(statistics));
};

/// The tiles of a row whose d_q is added up in memory.
template <int Width, int ValueWidth>
struct tuned_tiles;
/// Where every architecture of the build has them: blocks may have 227 KB of shared memory, and a
/// multiprocessor 228.
#if defined(__CUDA_ARCH_LIST__)
inline constexpr bool has_227_kb = [] {
  bool all = true;
  for (const int architecture : {__CUDA_ARCH_LIST__}) {
    all = all && architecture >= 900 && architecture < 1200;
  }
  return all;
}();
#else
inline constexpr bool has_227_kb = false;
#endif
template <>
struct tuned_tiles<64, 64> : gradient_tiles<64, 64, 128, 64, 4, has_227_kb ? 2 : 1, 2, 2, 2> {};
template <>
struct tuned_tiles<96, 96> : gradient_tiles<96, 96, 64, 64, 4, 2, 2, 2, 2> {};
template <>
struct tuned_tiles<128, 128> : gradient_tiles<128, 128, 64, 64, 4, 2, 2, 2, 2> {};
template <>
struct tuned_tiles<192, 128> : gradient_tiles<192, 128, 64, 64, 8, 2, 1, 4, 4> {};
template <>
struct tuned_tiles<256, 256> : gradient_tiles<256, 256, 64, 64, 8, has_227_kb ? 2 : 1, 1, 4, 4> {};

/// Where a lane finds 16 rows of a tile and 16 of its columns, of those from a first column on.
template <class Tile, int Columns>
class column_pairs {
 public:
  /// `from`: the lane's place in the first 16 columns; `first` is a multiple of `Columns`.
  __device__ __forceinline__ column_pairs(std::uint32_t from, int first) {
#pragma unroll
    for (int n = 0; n < kept; ++n) at_[n] = Tile::step(from, 0, first / 16 + n);
  }
  __device__ __forceinline__ std::uint32_t at(int row_step, int pair) const {
    if constexpr (kept == 1) {
      return Tile::step(at_[0], row_step, pair);
    } else {
      return at_[pair] + static_cast<std::uint32_t>(row_step * 16 * Tile::row_bytes);
    }
  }

 private:
  /// Steps within a line of 64 columns add up if no part begins inside of one and leaves it.
  static constexpr int kept = 64 % Columns == 0 || Columns % 64 == 0 ? 1 : Columns / 16;
  std::uint32_t at_[kept];
};

}  // namespace tessera::kernels::attention_backward::sm80
