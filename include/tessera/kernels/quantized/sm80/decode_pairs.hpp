// Codes of 4 or 8 bits as pairs of elements of 16 bits: scaled in f32 and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::kernels::quantized::sm80 {

/// What codes of a group become weights with: code times scale plus offset.
struct group_numbers {
  float scale = 0;
  float offset = 0;  ///< affine: of codes from 2^bits on
};

/// Numbers of the groups of a row, as they are stored.
struct group_row {
  const std::byte* first = nullptr;
  int size_shift = 0;  ///< log2 of the bytes of a number

  __device__ __forceinline__ group_row(const strided_matrix& numbers, std::int64_t row)
      : size_shift(numbers.type == dtype::u8    ? 0
                   : numbers.type == dtype::f32 ? 2
                                                : 1) {
    first = static_cast<const std::byte*>(numbers.data) + (row * numbers.row << size_shift);
  }
  /// The bits of a number: a load that nothing waits for.
  __device__ __forceinline__ std::uint32_t at(int group) const {
    const std::byte* const from = first + (std::int64_t{group} << size_shift);
    if (size_shift == 1) return *reinterpret_cast<const std::uint16_t*>(from);
    if (size_shift == 2) return *reinterpret_cast<const std::uint32_t*>(from);
    return *reinterpret_cast<const std::uint8_t*>(from);
  }
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

/// A run of 32 columns of a row on its way to a product: loads that nothing waits for, then pairs.
/// Codes of a row begin at a multiple of 16 bytes, groups have 16 columns or more.
template <int Bits>
class decode_run {
 public:
  static constexpr int columns = 32, units = columns / unit_columns, quads = Bits / 4;

  __device__ __forceinline__ void load(const packed_weights& weights, const std::byte* codes,
                                       const group_row& scales, const group_row& zeros,
                                       int group_shift, int column) {
    const auto* const from = reinterpret_cast<const uint4*>(codes + column / 8 * Bits);
#pragma unroll
    for (int i = 0; i < quads; ++i) words_[i] = __ldg(from + i);
    const bool affine = weights.mode == weight_mode::affine;
    const int group = column >> group_shift;
    scale_[0] = scale_[1] = scales.at(group);
    if (affine) zero_[0] = zero_[1] = zeros.at(group);
    if (group_shift > 4) return;
    scale_[1] = scales.at(group + 1);
    if (affine) zero_[1] = zeros.at(group + 1);
  }

  /// Calls store(unit, four pairs).
  template <class Element, class Store>
  __device__ __forceinline__ void decode(const packed_weights& weights, const float (&values)[16],
                                         const Store& store) const {
    if (weights.mode == weight_mode::affine) {
      decode_as<Element, true>(weights, values, store);
    } else {
      decode_as<Element, false>(weights, values, store);
    }
  }

 private:
  template <class Element, bool Affine, class Store>
  __device__ __forceinline__ void decode_as(const packed_weights& weights,
                                            const float (&values)[16], const Store& store) const;

  uint4 words_[quads];
  std::uint32_t scale_[2] = {}, zero_[2] = {};
};

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

template <int Bits>
template <class Element, bool Affine, class Store>
__device__ __forceinline__ void decode_run<Bits>::decode_as(const packed_weights& weights,
                                                            const float (&values)[16],
                                                            const Store& store) const {
  const group_numbers numbers[2] = {numbers_of_bits<Affine>(weights, scale_[0], zero_[0]),
                                    numbers_of_bits<Affine>(weights, scale_[1], zero_[1])};
  const auto* const words = reinterpret_cast<const std::uint32_t*>(words_);
#pragma unroll
  for (int unit = 0; unit < units; ++unit) {
    std::uint32_t of_unit[quads], pairs[4];
#pragma unroll
    for (int i = 0; i < quads; ++i) of_unit[i] = words[unit * quads + i];
    decode_pairs<Element, Bits, Affine>(values, of_unit, numbers[unit / 2], pairs);
    store(unit, pairs);
  }
}

/// log2 of the group size.
__device__ __forceinline__ int group_shift_of(const packed_weights& weights) {
  return 31 - __clz(static_cast<int>(weights.group_size));
}

/// The same as decode_weights, of 4 or 8 bits to elements of 16: a thread has a run of columns.
template <class Element, int Bits>
__global__ void __launch_bounds__(decode_threads)
    decode_runs(const packed_weights all, const strided_matrix to, const decode_range range) {
  if (!range.is_wanted()) return;
  const packed_weights weights = all.at(blockIdx.y);
  using run_type = decode_run<Bits>;
  __shared__ float values[16];
  fill_values(weights, values);
  const std::int64_t runs = range.units / run_type::units;
  const std::int64_t at = std::int64_t{blockIdx.x} * decode_threads + threadIdx.x;
  if (at >= range.rows * runs) return;
  const std::int64_t in = at <= UINT32_MAX
                              ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(runs)
                              : at / runs;
  const std::int64_t run = at - in * runs, row = range.row + in;
  run_type codes;
  codes.load(weights,
             static_cast<const std::byte*>(weights.codes.data) + row * weights.codes.row * 4,
             group_row(weights.scales, row), group_row(weights.zeros, row), group_shift_of(weights),
             static_cast<int>(range.unit * unit_columns + run * run_type::columns));
  auto* const first =
      reinterpret_cast<uint4*>(static_cast<Element*>(to.data) + blockIdx.y * to.matrix +
                               in * to.row + run * run_type::columns);
  codes.template decode<Element>(weights, values,
                                 [first](int unit, const std::uint32_t(&pairs)[4]) {
                                   first[unit] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
                                 });
}

}  // namespace tessera::kernels::quantized::sm80
