// Weights to codes and scales on a GPU: a warp has a group, or 32 columns of smaller ones. Every
// rule is float arithmetic in the order of the CPU's (cpu/encode.hpp), each step rounded by itself:
// codes, scales and words have the same bits.
#pragma once

#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::quantized::sm80 {

inline constexpr int quantize_warps = 16;

/// What is stored of a group besides its codes, and what codes are made with.
struct group_scale {
  float scale = 1;  ///< affine and nf4; else what weights are multiplied with (mx) or divided by
  float zero = 0;
  float stored_zero = 0;
  std::uint8_t code = 0;  ///< of the scale, where scales are bytes
};

/// The largest of a number of each lane, over lanes whose numbers differ in bits below `lanes`.
__device__ __forceinline__ float largest_of(float x, int lanes) {
  for (int step = 1; step < lanes; step *= 2) {
    const float other = __shfl_xor_sync(prim::cuda::all_lanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}

/// The scale of a group whose largest weight is `most` and whose smallest is `least`.
__device__ __forceinline__ group_scale scale_of_group(const packed_weights& to, float of_tensor,
                                                      float most, float least) {
  group_scale group;
  const float above = most > 0.0f ? most : 0.0f;
  const float magnitude = -least > above ? -least : above;
  if (to.mode == weight_mode::affine) {
    const auto most_code = static_cast<double>((1 << to.bits) - 1);
    const double range = static_cast<double>(most) - static_cast<double>(least);
    group.scale = finite(static_cast<float>(range / most_code));
    if (group.scale == 0) group.scale = 1;
    group.zero =
        finite(static_cast<float>(-static_cast<double>(least) / static_cast<double>(group.scale)));
    group.stored_zero = to.form == affine_weight_form::bias ? least : group.zero;
  } else if (to.mode == weight_mode::nf4) {
    group.scale = magnitude == 0 ? 1.0f : magnitude;
  } else if (is_mx(to.mode)) {
    const int top = has_e4m3_codes(to.mode) ? 8 : 2;
    int exponent = magnitude == 0 ? 0 : exponent_of(magnitude) - top;
    if (exponent < -127) exponent = -127;
    group.scale = power_of_two(-exponent);
    const int code = to.encoding == mx_scale_encoding::int8 ? exponent : exponent + 127;
    group.code = static_cast<std::uint8_t>(code);
  } else {
    const float top = has_e4m3_codes(to.mode) ? 448.0f : 6.0f;
    const f8_e4m3 scale(magnitude / top / of_tensor);
    group.scale = static_cast<float>(scale) * of_tensor;
    group.code = scale.bits;
  }
  return group;
}

__device__ __forceinline__ std::uint32_t code_of(const packed_weights& to, const group_scale& group,
                                                 float weight) {
  if (to.mode == weight_mode::affine) {
    const auto most_code = static_cast<float>((1 << to.bits) - 1);
    float place = weight / group.scale + group.zero;
    place = place > 0.0f ? place : 0.0f;
    place = place < most_code ? place : most_code;
    // Above 2^23 a float has no fraction: the sum is rounded there, to even.
    return __float_as_uint(place + 12582912.0f) & 0xffu;
  }
  if (to.mode == weight_mode::nf4) {
    constexpr auto limits = nf4_limits;
    const float value = weight / group.scale;
    std::uint32_t code = 0;
#pragma unroll
    for (int i = 0; i < 15; ++i) code += value > limits[static_cast<std::size_t>(i)] ? 1u : 0u;
    return code;
  }
  if (is_nv(to.mode) && group.scale == 0) return 0;
  const float value = is_mx(to.mode) ? weight * group.scale : weight / group.scale;
  if (has_e4m3_codes(to.mode)) return f8_e4m3(value).bits;
  constexpr auto limits = e2m1_limits;
  const std::uint32_t bits = __float_as_uint(value);
  const float magnitude = __uint_as_float(bits & 0x7fffffffu);
  std::uint32_t code = bits >> 28 & 8u;
#pragma unroll
  for (int i = 0; i < 7; ++i) code += magnitude > limits[static_cast<std::size_t>(i)] ? 1u : 0u;
  return code;
}

/// What is beyond the largest number of the type becomes that.
__device__ __forceinline__ void put_finite(const strided_matrix& to, std::int64_t at, float value) {
  const float most = to.type == dtype::f16    ? 65504.0f
                     : to.type == dtype::bf16 ? 0x1.fep127f
                                              : most_float;
  const float bounded = value > most ? most : value < -most ? -most : value;
  prim::cuda::put_number(to.data, to.type, at, bounded);
}

/// Codes of up to 32 columns, one of each lane, one behind the other from the lowest bit.
__device__ __forceinline__ void put_codes(const packed_weights& to, std::uint32_t* words, int lane,
                                          int count, std::uint32_t code) {
  const int bit = lane * to.bits, word = bit / 32, shift = bit % 32;
  const std::uint64_t placed = std::uint64_t{code} << shift;
  for (int w = 0; w * 32 < count * to.bits; ++w) {
    const std::uint32_t part = word == w       ? static_cast<std::uint32_t>(placed)
                               : word + 1 == w ? static_cast<std::uint32_t>(placed >> 32)
                                               : 0u;
    const std::uint32_t all = __reduce_or_sync(prim::cuda::all_lanes, part);
    if (lane == 0) words[w] = all;
  }
}

/// Groups one after the other along a row, or blocks of 32 columns where groups are smaller; warps
/// of a block have rows next to each other.
static __global__ void __launch_bounds__(quantize_warps * 32)
    quantize_weights(const quantized_kernel_args args) {
  const packed_weights& to = args.weights;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int size = static_cast<int>(to.group_size), span = size < 32 ? 32 : size;
  const std::int64_t columns = to.columns(), spans = (columns + span - 1) / span;
  const std::int64_t row = blockIdx.x / spans * quantize_warps + threadIdx.x / 32;
  if (row >= to.rows) return;
  const std::int64_t first = blockIdx.x % spans * span;
  const int count = columns - first < span ? static_cast<int>(columns - first) : span;
  const auto weight_at = [&](int i) {
    const std::int64_t column = first + i;
    const std::int64_t at =
        args.transposed ? column * args.w.column + row : row * args.w.row + column;
    const float x = prim::cuda::number_at(args.w.data, args.w.type, at);
    return has_e4m3_codes(to.mode) ? limited(x) : finite(x);
  };
  float most = -most_float, least = most_float;
  for (int i = lane; i < count; i += 32) {
    const float x = weight_at(i);
    most = x > most ? x : most;
    least = x < least ? x : least;
  }
  const int lanes = size < 32 ? size : 32;
  most = largest_of(most, lanes);
  least = -largest_of(-least, lanes);
  const float of_tensor =
      to.tensor_scale != nullptr ? *static_cast<const float*>(to.tensor_scale) : 1.0f;
  const group_scale group = scale_of_group(to, of_tensor, most, least);
  auto* const words = static_cast<std::uint32_t*>(to.codes.data) + row * to.codes.row;
  for (int i = 0; i < count; i += 32) {
    const bool held = i + lane < count;
    const std::uint32_t code = held ? code_of(to, group, weight_at(i + lane)) : 0u;
    put_codes(to, words + (first + i) / 32 * to.bits, lane, count - i < 32 ? count - i : 32, code);
  }
  if (lane % lanes != 0 || lane >= count) return;
  const std::int64_t number = (first + lane) / size;
  if (!has_float_scales(to.mode)) {
    static_cast<std::uint8_t*>(to.scales.data)[row * to.scales.row + number] = group.code;
    return;
  }
  put_finite(to.scales, row * to.scales.row + number, group.scale);
  if (to.zeros.data != nullptr)
    put_finite(to.zeros, row * to.zeros.row + number, group.stored_zero);
}

}  // namespace tessera::kernels::quantized::sm80
