// Packed weights as floats on a GPU: eight columns of a stored row at a time, which never have two
// scales. The bits are those of the CPU's.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::sm80 {

/// Columns that are decoded together.
inline constexpr int unit_columns = 8;

/// The group of a column; their size is a power of two.
__device__ __forceinline__ std::int64_t group_of(const packed_weights& weights,
                                                 std::int64_t column) {
  return column >> (31 - __clz(static_cast<int>(weights.group_size)));
}

/// What codes of four bits stand for, in shared memory; a block meets at a barrier.
__device__ __forceinline__ void fill_values(const packed_weights& weights, float (&values)[16]) {
  if (threadIdx.x < 16) {
    static constexpr std::array tables{nf4_values, e2m1_values};  // not on the stack of a thread
    values[threadIdx.x] = tables[weights.mode == weight_mode::nf4 ? 0 : 1][threadIdx.x];
  }
  __syncthreads();
}

/// Eight codes of a row, the first in the lowest bits.
__device__ __forceinline__ std::uint64_t codes_of_unit(const packed_weights& weights,
                                                       std::int64_t row, std::int64_t unit) {
  const auto* const words =
      static_cast<const std::uint32_t*>(weights.codes.data) + row * weights.codes.row;
  const auto bit = static_cast<std::uint64_t>(unit * unit_columns * weights.bits);
  const auto first = static_cast<std::int64_t>(bit / 32);
  const auto shift = static_cast<unsigned>(bit % 32);
  const unsigned end = shift + static_cast<unsigned>(unit_columns * weights.bits);
  std::uint64_t codes = std::uint64_t{words[first]} >> shift;
  if (end > 32) codes |= std::uint64_t{words[first + 1]} << (32 - shift);
  if (end > 64) codes |= std::uint64_t{words[first + 2]} << (64 - shift);
  return codes;
}

/// The bits of a number of a group, as they are stored.
__device__ __forceinline__ std::uint32_t bits_of_group(const strided_matrix& numbers,
                                                       std::int64_t row, std::int64_t group) {
  const std::int64_t at = row * numbers.row + group;
  if (numbers.type == dtype::u8) return static_cast<const std::uint8_t*>(numbers.data)[at];
  if (numbers.type == dtype::f32) return static_cast<const std::uint32_t*>(numbers.data)[at];
  return static_cast<const std::uint16_t*>(numbers.data)[at];
}
__device__ __forceinline__ float number_of_bits(dtype type, std::uint32_t bits) {
  if (type == dtype::f32) return __uint_as_float(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return type == dtype::f16 ? prim::cuda::half_words<f16>::unpack(half)
                            : prim::cuda::half_words<bf16>::unpack(half);
}

/// The bits of a scale as a number.
__device__ __forceinline__ float scale_of_bits(const packed_weights& weights, std::uint32_t bits) {
  if (has_float_scales(weights.mode)) return number_of_bits(weights.scales.type, bits);
  if (is_mx(weights.mode)) {
    if (weights.encoding == mx_scale_encoding::int8) {
      return power_of_two(static_cast<std::int8_t>(bits));
    }
    return bits == 255 ? std::numeric_limits<float>::quiet_NaN()
                       : power_of_two(static_cast<int>(bits) - 127);
  }
  const float of_tensor =
      weights.tensor_scale != nullptr ? *static_cast<const float*>(weights.tensor_scale) : 1.0f;
  return e4m3_value(static_cast<std::int32_t>(bits)) * of_tensor;
}
/// The scale of a group.
__device__ __forceinline__ float scale_of(const packed_weights& weights, std::int64_t row,
                                          std::int64_t group) {
  return scale_of_bits(weights, bits_of_group(weights.scales, row, group));
}

/// Codes as numbers, before scales and zeros.
__device__ __forceinline__ void values_of_unit(const packed_weights& weights,
                                               const float (&values)[16], std::uint64_t codes,
                                               float (&x)[unit_columns]) {
  const unsigned mask = (1u << weights.bits) - 1;
#pragma unroll
  for (int i = 0; i < unit_columns; ++i) {
    const unsigned code = static_cast<unsigned>(codes >> (i * weights.bits)) & mask;
    if (weights.mode == weight_mode::affine) {
      x[i] = static_cast<float>(code);
    } else if (has_e4m3_codes(weights.mode)) {
      x[i] = e4m3_value(static_cast<std::int32_t>(code));
    } else {
      x[i] = values[code];
    }
  }
}

/// Weights before the scale of their group: codes less the zero.
__device__ __forceinline__ void unscaled_unit(const packed_weights& weights,
                                              const float (&values)[16], std::int64_t row,
                                              std::int64_t unit, float (&x)[unit_columns]) {
  values_of_unit(weights, values, codes_of_unit(weights, row, unit), x);
  if (weights.zeros.data == nullptr || weights.form == affine_weight_form::bias) return;
  const std::int64_t group = group_of(weights, unit * unit_columns);
  const float zero = prim::cuda::number_at(weights.zeros.data, weights.zeros.type,
                                           row * weights.zeros.row + group);
#pragma unroll
  for (int i = 0; i < unit_columns; ++i) x[i] -= zero;
}

/// Weights of a row, columns [8 unit, 8 unit + 8).
__device__ __forceinline__ void decode_unit(const packed_weights& weights,
                                            const float (&values)[16], std::int64_t row,
                                            std::int64_t unit, float (&x)[unit_columns]) {
  unscaled_unit(weights, values, row, unit, x);
  const std::int64_t group = group_of(weights, unit * unit_columns);
  const float scale = scale_of(weights, row, group);
  const bool biased = weights.zeros.data != nullptr && weights.form == affine_weight_form::bias;
  const float bias = biased ? prim::cuda::number_at(weights.zeros.data, weights.zeros.type,
                                                    row * weights.zeros.row + group)
                            : 0.0f;
#pragma unroll
  for (int i = 0; i < unit_columns; ++i) x[i] = biased ? fmaf(x[i], scale, bias) : x[i] * scale;
}

/// Stores eight numbers side by side, at once where the address allows it.
__device__ __forceinline__ void store_unit(const strided_matrix& to, std::int64_t offset,
                                           const float (&x)[unit_columns]) {
  prim::cuda::with_elements(to.data, to.type, [&]<class Element>(Element* elements) {
    using vector = prim::cuda::element_vector<Element, unit_columns>;
    Element* const first = elements + offset;
    vector all;
#pragma unroll
    for (int i = 0; i < unit_columns; i += 2) {
      prim::cuda::store_pair(all.x + i, x[i], x[i + 1]);
    }
    if (reinterpret_cast<std::uintptr_t>(first) % 16 == 0) {
      *reinterpret_cast<vector*>(first) = all;
    } else {
#pragma unroll
      for (int i = 0; i < unit_columns; ++i) first[i] = all.x[i];
    }
  });
}

inline constexpr int decode_threads = 256;

/// A part of packed weights on its way out, of each matrix: blocks with the same y have one.
struct decode_range {
  std::int64_t row = 0, rows = 0;
  std::int64_t unit = 0, units = 0;  ///< of the columns
  std::int64_t matrices = 1;
  const std::int32_t* sizes = nullptr;  ///< of their groups; null: all are wanted

  constexpr std::int64_t blocks() const {
    return (rows * units + decode_threads - 1) / decode_threads;
  }
  /// Whether the matrix of a block belongs to rows.
  __device__ __forceinline__ bool is_wanted() const {
    return sizes == nullptr || sizes[blockIdx.y] > 0;
  }
};

/// to [rows, 8 units] = the weights of a range: a thread has eight columns.
static __global__ void __launch_bounds__(decode_threads)
    decode_weights(const packed_weights all, const strided_matrix to, const decode_range range) {
  if (!range.is_wanted()) return;
  const packed_weights weights = all.at(blockIdx.y);
  __shared__ float values[16];
  fill_values(weights, values);
  const std::int64_t at = std::int64_t{blockIdx.x} * decode_threads + threadIdx.x;
  if (at >= range.rows * range.units) return;
  const std::int64_t row =
      at <= UINT32_MAX ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(range.units)
                       : at / range.units;
  const std::int64_t unit = at - row * range.units;
  float x[unit_columns];
  decode_unit(weights, values, range.row + row, range.unit + unit, x);
  store_unit(to, blockIdx.y * to.matrix + row * to.row + unit * unit_columns, x);
}

/// Gradients of scales and zeros from d_w, which has rows [first, first + rows) of the weights: a
/// warp has a group.
static __global__ void __launch_bounds__(decode_threads)
    sum_groups(const quantized_kernel_args args, const float* d_w, const std::int64_t first,
               const std::int64_t rows) {
  __shared__ float values[16];
  const packed_weights& weights = args.weights;
  fill_values(weights, values);
  const std::int64_t item = std::int64_t{blockIdx.x} * (decode_threads / 32) + threadIdx.x / 32;
  if (item >= rows * weights.groups) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t in = item / weights.groups, group = item - in * weights.groups;
  const std::int64_t row = first + in;
  const float* const of_row = d_w + in * weights.columns();
  float of_scale = 0, of_zero = 0;
  for (std::int64_t unit = lane; unit < weights.group_size / unit_columns; unit += 32) {
    const std::int64_t at = group * (weights.group_size / unit_columns) + unit;
    float x[unit_columns];
    unscaled_unit(weights, values, row, at, x);
#pragma unroll
    for (int i = 0; i < unit_columns; ++i) {
      const float gradient = of_row[at * unit_columns + i];
      of_scale = fmaf(gradient, x[i], of_scale);
      of_zero += gradient;
    }
  }
  of_scale = prim::cuda::sum_of_warp(of_scale);
  of_zero = prim::cuda::sum_of_warp(of_zero);
  if (lane != 0) return;
  if (args.d_scales.data != nullptr) {
    prim::cuda::put_number(args.d_scales.data, args.d_scales.type, row * args.d_scales.row + group,
                           of_scale);
  }
  if (args.d_zeros.data == nullptr) return;
  const bool biased = weights.form == affine_weight_form::bias;
  prim::cuda::put_number(args.d_zeros.data, args.d_zeros.type, row * args.d_zeros.row + group,
                         biased ? of_zero : -scale_of(weights, row, group) * of_zero);
}

}  // namespace tessera::kernels::quantized::sm80
