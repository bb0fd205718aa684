// Codes of 4 or 8 bits as pairs of elements of 16 bits: scaled in f32 and rounded once.
#pragma once

#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::quantized::sm80 {

/// What codes of a group become weights with: code times scale plus offset.
struct group_numbers {
  float scale = 0;
  float offset = 0;  ///< affine: of codes from 2^bits on
};

/// What the bits of a scale and a zero stand for.
template <bool Affine>
__device__ __forceinline__ group_numbers numbers_of_bits(const packed_weights& weights,
                                                         std::uint32_t scale, std::uint32_t zero) {
  group_numbers to;
  to.scale = scale_of_bits(weights, scale);
  if constexpr (Affine) {
    const auto anchor = static_cast<float>(1 << weights.bits);
    const float own = number_of_bits(weights.zeros.type, zero);
    to.offset = weights.form == affine_weight_form::bias ? fmaf(-anchor, to.scale, own)
                                                         : -(anchor + own) * to.scale;
  }
  return to;
}

/// Eight codes.
template <class Element, int Bits, bool Affine>
__device__ __forceinline__ void decode_pairs(const float (&values)[16],
                                             const std::uint32_t (&words)[Bits / 4],
                                             const group_numbers& numbers,
                                             std::uint32_t (&pairs)[4]) {
  constexpr std::uint32_t mask = (1u << Bits) - 1;
  constexpr int in_word = 32 / Bits;
  float x[8];
  if constexpr (Affine) {
    // Below a leading one, codes are whole numbers from 2^Bits on.
    constexpr int place = 23 - Bits;
    constexpr std::uint32_t anchor = static_cast<std::uint32_t>(127 + Bits) << 23;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int bit = i % in_word * Bits;
      const std::uint32_t word = words[i / in_word];
      const std::uint32_t placed = bit <= place ? word << (place - bit) : word >> (bit - place);
      x[i] =
          fmaf(__uint_as_float((placed & (mask << place)) | anchor), numbers.scale, numbers.offset);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t code = words[i / in_word] >> (i % in_word * Bits) & mask;
      const float value =
          Bits == 8 ? e4m3_value(static_cast<std::int32_t>(code)) : values[code & 15u];
      x[i] = value * numbers.scale;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = prim::cuda::half_words<Element>::pack(x[2 * i], x[2 * i + 1]);
  }
}

/// Rows that a thread decodes its eight columns of: their loads are on their way together.
inline constexpr int decode_rows_together = 4;

/// What decode_words has to do, as warps have it: so many rows of 32 units side by side.
struct decode_parts {
  std::int64_t across = 0, all = 0;

  __host__ __device__ explicit constexpr decode_parts(const decode_range& range)
      : across((range.units + 31) / 32),
        all((range.rows + decode_rows_together - 1) / decode_rows_together * across) {}
};

/// The bits of a number of several rows, as they are stored: loads that nothing waits for.
template <int Rows>
__device__ __forceinline__ void load_numbers(const strided_matrix& of, std::int64_t group,
                                             const std::int64_t (&rows)[Rows],
                                             std::uint32_t (&to)[Rows]) {
  const auto load = [&]<class Bits>(const Bits* numbers) {
#pragma unroll
    for (int i = 0; i < Rows; ++i) to[i] = __ldg(numbers + rows[i] * of.row + group);
  };
  if (of.type == dtype::u8) return load(static_cast<const std::uint8_t*>(of.data));
  if (of.type == dtype::f32) return load(static_cast<const std::uint32_t*>(of.data));
  load(static_cast<const std::uint16_t*>(of.data));
}

/// The same as decode_weights, of 4 or 8 bits to elements of 16 whose rows begin at multiples of 16
/// bytes: lanes have columns side by side, so that a warp stores 512 bytes at once.
template <class Element, int Bits>
__global__ void __launch_bounds__(decode_threads)
    decode_words(const packed_weights all, const strided_matrix to, const decode_range range) {
  if (!range.is_wanted()) return;
  const packed_weights weights = all.at(blockIdx.y);
  constexpr int count = decode_rows_together, quads = Bits / 4;
  __shared__ float values[16];
  fill_values(weights, values);
  const decode_parts parts(range);
  const std::int64_t part =
      (std::int64_t{blockIdx.x} * decode_threads + threadIdx.x) / prim::cuda::warp_size;
  const std::int64_t above = part <= UINT32_MAX ? static_cast<std::uint32_t>(part) /
                                                      static_cast<std::uint32_t>(parts.across)
                                                : part / parts.across;
  const std::int64_t unit = (part - above * parts.across) * 32 + threadIdx.x % 32;
  const std::int64_t first = above * count;
  if (first >= range.rows || unit >= range.units) return;
  const std::int64_t column = (range.unit + unit) * unit_columns;
  std::int64_t rows[count];
  std::uint32_t codes[count][quads], scales[count], zeros[count] = {};
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const std::int64_t in = first + i < range.rows ? first + i : range.rows - 1;
    rows[i] = range.row + in;
    const auto* const words = static_cast<const std::uint32_t*>(weights.codes.data) +
                              rows[i] * weights.codes.row + column * Bits / 32;
#pragma unroll
    for (int word = 0; word < quads; ++word) codes[i][word] = __ldg(words + word);
  }
  const bool affine = weights.mode == weight_mode::affine;
  const std::int64_t group = group_of(weights, column);
  load_numbers(weights.scales, group, rows, scales);
  if (affine) load_numbers(weights.zeros, group, rows, zeros);
  auto* const elements = static_cast<Element*>(to.data) + blockIdx.y * to.matrix + first * to.row +
                         unit * unit_columns;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    std::uint32_t pairs[4];
    if (affine) {
      decode_pairs<Element, Bits, true>(values, codes[i],
                                        numbers_of_bits<true>(weights, scales[i], zeros[i]), pairs);
    } else {
      decode_pairs<Element, Bits, false>(values, codes[i],
                                         numbers_of_bits<false>(weights, scales[i], 0), pairs);
    }
    if (first + i < range.rows) {
      *reinterpret_cast<uint4*>(elements + i * to.row) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
}

}  // namespace tessera::kernels::quantized::sm80
