// Up to 16 rows of x as the second operand of mma.sync, of f16 (few_elements.hpp): the 256 elements
// of a row that a stage has share a power of two.
//
// A box is what a stage needs: for each panel of 64 columns, eight columns of the operand and eight
// columns of x, 16 bytes of each lane; then sums of x over spans, and what restores the rows.
// Columns of the operand are rows of x. Of one or two rows there are four spans side by side:
// column 2 s + r is row r of span s where the span lies, 0 elsewhere, so that one sum on the matrix
// unit keeps four groups apart.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/quantized/sm90/few_elements.hpp>
#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::sm90 {

inline constexpr int few_panels = 4;        ///< of a stage
inline constexpr int few_tail_bytes = 384;  ///< sums over spans and factors of rows

/// Rows of x, 2, 8 or 16, and columns that have one scale: 16, 32, 64 or 128.
template <int Rows, int Span>
struct few_box {
  static constexpr int columns = Rows > 8 ? 16 : 8;  ///< of the operand
  static constexpr int tiles = columns / 8;
  static constexpr int spans = columns / Rows;  ///< side by side
  static constexpr int tile_bytes = 1024;       ///< of eight columns of the operand, of a panel
  static constexpr int sums_at = few_panels * tiles * tile_bytes;
  static constexpr int factors_at = sums_at + few_panels * columns * 4;
  static constexpr int bytes = sums_at + few_tail_bytes;
  static_assert(factors_at + columns * 4 <= bytes);

  /// The first of eight columns of a panel that lane t of a quad has in word `unit`.
  static __device__ __forceinline__ int column_of(int t, int unit) {
    return Span >= 64 ? t * 16 + unit * 8 : unit * 32 + t * 8;
  }
};

inline constexpr int few_order_threads = few_panels * 32;

/// A block has a stage and eight columns of the operand.
template <class Element, thin_code Code, int Rows, int Span>
__global__ void __launch_bounds__(few_order_threads) spread_rows(const ordered_rows rows) {
  using box = few_box<Rows, Span>;
  __shared__ float largest[few_panels][8];
  prim::cuda::wait_for_grid_before();
  prim::cuda::let_next_grid_start();
  const int stage = static_cast<int>(blockIdx.x), tile = static_cast<int>(blockIdx.y);
  const int panel = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int row = box::spans > 1 ? g % Rows : tile * 8 + g;
  const std::int64_t first = (std::int64_t{stage} * few_panels + panel) * 64;
  float x[2][8];
  float most = 0.0f;
  std::uint32_t words_of_x[2][4];
  load_eights_of_x(rows,
                   {.row = row,
                    .column = first + box::column_of(t, 0),
                    .column_step = box::column_of(t, 1) - box::column_of(t, 0)},
                   words_of_x);
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
    unpack_eight<Element>(words_of_x[unit], x[unit]);
    most = fmaxf(most, largest_finite(x[unit]));
  }
  most = fmaxf(most, __shfl_xor_sync(prim::cuda::all_lanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(prim::cuda::all_lanes, most, 2));
  if (t == 0) largest[panel][g] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < few_panels; ++i) most = fmaxf(most, largest[i][g]);
  const row_scale scale(most);

  std::byte* const to = static_cast<std::byte*>(rows.to) + std::int64_t{stage} * box::bytes;
  float sum = 0.0f;
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
    const int span = (panel * 64 + box::column_of(t, unit)) / Span % box::spans;
    const bool own = box::spans == 1 || span == g / Rows;
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float factor = i % 2 == 1 ? scale.up * odd_pair_factor<Code> : scale.up;
      words[i] =
          own ? prim::cuda::half_words<f16>::pack(x[unit][i] * factor, x[unit][i + 4] * factor) : 0;
    }
    std::byte* const place =
        to + (panel * box::tiles + tile) * box::tile_bytes + unit * 512 + lane * 16;
    *reinterpret_cast<uint4*>(place) = make_uint4(words[0], words[1], words[2], words[3]);
    if (!own) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += x[unit][i] * scale.up;
  }
  sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 1);
  sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 2);
  if (t != 0) return;
  auto* const sums = reinterpret_cast<float*>(to + box::sums_at);
  // Side by side: of each column the panel that its span is.
  if (box::spans == 1) {
    sums[panel * box::columns + tile * 8 + g] = sum / few_factor<Code>;
  } else if (panel == g / Rows) {
    sums[g] = sum / few_factor<Code>;
  }
  if (panel == 0) reinterpret_cast<float*>(to + box::factors_at)[tile * 8 + g] = scale.down;
}

}  // namespace tessera::kernels::quantized::sm90
