// Products of a few rows of x with packed weights that have groups of inputs, on a GPU: weights are
// read once, 16 bytes at a time, decoded in registers, rounded once and multiplied by the matrix
// unit. A warp has 32 outputs and every eighth piece of the inputs; sums of warps meet in shared
// memory.
//
// Inputs of a piece come in the order of the codes: lane t of a quad has 32 of them side by side,
// both of the weights and of x, four for each product.
#pragma once

#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::sm80 {

inline constexpr int thin_warps = 8;
inline constexpr int thin_outputs = 32;        ///< of a block
inline constexpr int thin_piece = 128;         ///< inputs
inline constexpr std::int64_t thin_rows = 16;  ///< of x, at most

/// What codes of the groups of four rows become weights with.
struct group_numbers {
  float scale[4];
  float offset[4];  ///< affine: added to the code times the scale, of codes from `anchor` on

  /// `anchor` is what codes of affine weights are counted from. All loads are under way at once.
  __device__ __forceinline__ void load(const packed_weights& weights, const std::int64_t (&rows)[4],
                                       std::int64_t group, float anchor) {
    if (!has_float_scales(weights.mode)) {
#pragma unroll
      for (int r = 0; r < 4; ++r) scale[r] = scale_of(weights, rows[r], group);
      return;
    }
    float zero[4] = {};
    prim::cuda::with_elements(
        weights.scales.data, weights.scales.type, [&]<class Number>(const Number* scales) {
          const auto* const zeros =
              static_cast<const Number*>(weights.zeros.data);  // of the same type
          const bool affine = weights.mode == weight_mode::affine;
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            scale[r] = prim::cuda::float_of(scales[rows[r] * weights.scales.row + group]);
            if (affine) zero[r] = prim::cuda::float_of(zeros[rows[r] * weights.zeros.row + group]);
          }
        });
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      offset[r] = weights.form == affine_weight_form::bias ? fmaf(-anchor, scale[r], zero[r])
                                                           : -(anchor + zero[r]) * scale[r];
    }
  }
};

/// Eight codes as pairs of elements.
template <class Element, int Bits>
__device__ __forceinline__ void decode_pairs(const packed_weights& weights,
                                             const float (&values)[16],
                                             const std::uint32_t (&words)[Bits / 4], float scale,
                                             float offset, std::uint32_t (&pairs)[4]) {
  constexpr std::uint32_t mask = (1u << Bits) - 1;
  constexpr int in_word = 32 / Bits;
  float x[8];
  if (weights.mode == weight_mode::affine) {
    // Below a leading one, codes are whole numbers from 2^Bits on.
    constexpr int place = 23 - Bits;
    constexpr std::uint32_t anchor = static_cast<std::uint32_t>(127 + Bits) << 23;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int bit = i % in_word * Bits;
      const std::uint32_t word = words[i / in_word];
      const std::uint32_t placed = bit <= place ? word << (place - bit) : word >> (bit - place);
      x[i] = fmaf(__uint_as_float((placed & (mask << place)) | anchor), scale, offset);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t code = words[i / in_word] >> (i % in_word * Bits) & mask;
      const float value =
          Bits == 8 ? e4m3_value(static_cast<std::int32_t>(code)) : values[code & 15u];
      x[i] = value * scale;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = prim::cuda::half_words<Element>::pack(x[2 * i], x[2 * i + 1]);
  }
}

/// The codes of a lane in a piece: 32 of each of four rows.
template <int Bits>
struct thin_codes {
  uint4 words[4][Bits / 4];

  __device__ __forceinline__ void load(const std::uint32_t* (&rows)[4], std::int64_t piece) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const auto* const from =
          reinterpret_cast<const uint4*>(rows[r] + piece * (thin_piece / 32) * Bits);
#pragma unroll
      for (int i = 0; i < Bits / 4; ++i) words[r][i] = __ldcs(from + i);
    }
  }
  /// Eight of a row.
  __device__ __forceinline__ void unit(int row, int number, std::uint32_t (&to)[Bits / 4]) const {
    const auto* const all = reinterpret_cast<const std::uint32_t*>(words[row]);
#pragma unroll
    for (int i = 0; i < Bits / 4; ++i) to[i] = all[number * (Bits / 4) + i];
  }
};

/// out [batch, rows] = x w^T; x and codes begin at multiples of 16 bytes, columns are whole pieces.
template <class Element, int Bits, int Tiles>
__global__ void __launch_bounds__(thin_warps * 32, 2)
    multiply_thin(const __grid_constant__ quantized_kernel_args args) {
  __shared__ float values[16];
  __shared__ float sums_of_warps[thin_warps][Tiles * 8][thin_outputs];
  const packed_weights& weights = args.weights;
  fill_values(weights, values);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int g = lane / 4, t = lane % 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * thin_outputs;
  const std::uint32_t* rows[4];
  std::int64_t row_of[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const std::int64_t row = first + r * 8 + g;
    row_of[r] = row < weights.rows ? row : weights.rows - 1;
    rows[r] = static_cast<const std::uint32_t*>(weights.codes.data) +
              row_of[r] * weights.codes.row + t * Bits;
  }
  const auto* const x = static_cast<const Element*>(args.x.data) + t * 32;
  prim::cuda::accumulator sums[2][Tiles] = {};
  const std::int64_t pieces = weights.columns() / thin_piece;
  const int size = static_cast<int>(weights.group_size < 32 ? weights.group_size : 32);
  thin_codes<Bits> codes;
  if (warp < pieces) codes.load(rows, warp);
#pragma unroll 1
  for (std::int64_t piece = warp; piece < pieces; piece += thin_warps) {
    const thin_codes<Bits> own = codes;
    if (piece + thin_warps < pieces) codes.load(rows, piece + thin_warps);
    const std::int64_t column = piece * thin_piece + t * 32;
    group_numbers numbers;
#pragma unroll
    for (int unit = 0; unit < 4; ++unit) {
      prim::cuda::fragment_b2 b[Tiles];
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        uint4 words = make_uint4(0, 0, 0, 0);
        if (tile * 8 + g < args.batch) {
          words = *reinterpret_cast<const uint4*>(x + (tile * 8 + g) * args.x.row +
                                                  piece * thin_piece + unit * 8);
        }
        b[tile] = {{words.x, words.y, words.z, words.w}};
      }
      if (unit == 0 || (unit * 8 & (size - 1)) == 0) {
        numbers.load(weights, row_of, group_of(weights, column + unit * 8),
                     static_cast<float>(1 << Bits));
      }
      std::uint32_t pairs[4][4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        std::uint32_t of_unit[Bits / 4];
        own.unit(r, unit, of_unit);
        decode_pairs<Element, Bits>(weights, values, of_unit, numbers.scale[r], numbers.offset[r],
                                    pairs[r]);
      }
      using words = prim::cuda::half_words<Element>;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const auto &low = pairs[2 * m], &high = pairs[2 * m + 1];
        const prim::cuda::fragment_a a[2] = {{{low[0], high[0], low[1], high[1]}},
                                             {{low[2], high[2], low[3], high[3]}}};
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          words::template multiply_add<0>(sums[m][tile], a[0], b[tile]);
          words::template multiply_add<1>(sums[m][tile], a[1], b[tile]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums_of_warps[warp][tile * 8 + t * 2 + i % 2][m * 16 + i / 2 * 8 + g] = sums[m][tile].at[i];
      }
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < Tiles * 8 * thin_outputs;
       at += thin_warps * 32) {
    const int m = at / thin_outputs, n = at % thin_outputs;
    if (m >= args.batch || first + n >= weights.rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < thin_warps; ++w) sum += sums_of_warps[w][m][n];
    prim::cuda::put_number(args.out.data, args.out.type, m * args.out.row + first + n, sum);
  }
}

}  // namespace tessera::kernels::quantized::sm80
