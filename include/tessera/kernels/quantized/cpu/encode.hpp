// A group of weights to codes and a scale. Every rule is float arithmetic in this order, each step
// rounded by itself, so that all instruction sets agree in every bit. Infinity counts as the
// largest float, NaN as 0, except that E4M3 has a code for it.
//
// | mode | scale | code |
// |---|---|---|
// | affine | (max - min) / (2^bits - 1), 1 for 0 | w / scale + zero, to even, up to 2^bits - 1 |
// | nf4 | largest magnitude, 1 for 0 | the nearest entry to w / scale, of two the lower one |
// | mx | 2^e, e = floor(log2 of it) - 2 (E2M1) or 8 (E4M3), at least -127; 1 for 0 | w / scale |
// | nv | that over 6 or 448 and the scale of the tensor, in E4M3 | w / scale, 0 for scale 0 |
//
// zero is -min / scale. E2M1 and E4M3 round to the nearest, ties to even, saturate and keep signs.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::quantized::cpu {

/// What is stored of a group besides its codes.
struct group_scale {
  float scale = 1;
  float zero = 0;
  std::uint8_t code = 0;  ///< of the scale, where scales are bytes
};

template <class Isa>
class group_encoder {
 public:
  TESSERA_INLINE explicit group_encoder(const packed_weights& to)
      : to_(to), size_(static_cast<int>(to.group_size)) {
    if (to.tensor_scale != nullptr) of_tensor_ = *static_cast<const float*>(to.tensor_scale);
  }

  /// Encodes the weights of a group, which it makes finite.
  group_scale encode(float* weights, std::uint8_t* codes) const {
    if (has_e4m3_codes(to_.mode)) {
      for (int i = 0; i < size_; ++i) weights[i] = limited(weights[i]);
    } else {
      for (int i = 0; i < size_; ++i) weights[i] = finite(weights[i]);
    }
    switch (to_.mode) {
      case weight_mode::affine:
        return encode_affine(weights, codes);
      case weight_mode::nf4:
        return encode_nf4(weights, codes);
      case weight_mode::mxfp4:
      case weight_mode::mxfp8:
        return encode_mx(weights, codes);
      default:
        return encode_nv(weights, codes);
    }
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;

  /// The largest of 0, or of `start`, and sign * w. A NaN is nobody's maximum.
  TESSERA_INLINE float largest(const float* weights, float sign, float start) const {
    reg most = vec::broadcast(start);
    const reg factor = vec::broadcast(sign);
    int at = 0;
    for (; at + vec::width <= size_; at += vec::width) {
      most = vec::max(vec::mul(vec::load(weights + at), factor), most);
    }
    float best = vec::maximum(most);
    for (; at < size_; ++at) best = weights[at] * sign > best ? weights[at] * sign : best;
    return best;
  }
  TESSERA_INLINE float largest_magnitude(const float* weights) const {
    const float above = largest(weights, 1.0f, 0.0f);
    return largest(weights, -1.0f, above);
  }

  group_scale encode_affine(const float* weights, std::uint8_t* codes) const {
    const float most_code = static_cast<float>((1 << to_.bits) - 1);
    const float most = largest(weights, 1.0f, -most_float);
    const float least = -largest(weights, -1.0f, -most_float);
    const double range = static_cast<double>(most) - static_cast<double>(least);
    group_scale group{.scale = finite(static_cast<float>(range / static_cast<double>(most_code)))};
    if (group.scale == 0) group.scale = 1;
    group.zero =
        finite(static_cast<float>(-static_cast<double>(least) / static_cast<double>(group.scale)));
    for (int i = 0; i < size_; ++i) {
      float place = weights[i] / group.scale + group.zero;
      place = place > 0.0f ? place : 0.0f;
      place = place < most_code ? place : most_code;
      // Above 2^23 a float has no fraction: the sum is rounded there, to even.
      codes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(place + 12582912.0f));
    }
    if (to_.form == affine_weight_form::bias) group.zero = least;
    return group;
  }

  group_scale encode_nf4(const float* weights, std::uint8_t* codes) const {
    const float most = largest_magnitude(weights);
    const group_scale group{.scale = most == 0 ? 1.0f : most};
    for (int i = 0; i < size_; ++i) {
      const float value = weights[i] / group.scale;
      int code = 0;
      for (const float limit : nf4_limits) code += value > limit ? 1 : 0;
      codes[i] = static_cast<std::uint8_t>(code);
    }
    return group;
  }

  group_scale encode_mx(const float* weights, std::uint8_t* codes) const {
    const float most = largest_magnitude(weights);
    const int top = has_e4m3_codes(to_.mode) ? 8 : 2;
    int exponent = most == 0 ? 0 : exponent_of(most) - top;
    if (exponent < -127) exponent = -127;
    encode_elements(weights, power_of_two(-exponent), codes,
                    [](float weight, float factor) { return weight * factor; });
    const int code = to_.encoding == mx_scale_encoding::int8 ? exponent : exponent + 127;
    return {.code = static_cast<std::uint8_t>(code)};
  }

  group_scale encode_nv(const float* weights, std::uint8_t* codes) const {
    const float top = has_e4m3_codes(to_.mode) ? 448.0f : 6.0f;
    const f8_e4m3 scale(largest_magnitude(weights) / top / of_tensor_);
    const float divisor = static_cast<float>(scale) * of_tensor_;
    if (divisor == 0) {
      for (int i = 0; i < size_; ++i) codes[i] = 0;
    } else {
      encode_elements(weights, divisor, codes, [](float weight, float by) { return weight / by; });
    }
    return {.code = scale.bits};
  }

  /// E2M1 or E4M3 of scaled weights.
  template <class Scaled>
  TESSERA_INLINE void encode_elements(const float* weights, float by, std::uint8_t* codes,
                                      const Scaled& scaled) const {
    if (has_e4m3_codes(to_.mode)) {
      for (int i = 0; i < size_; ++i) codes[i] = f8_e4m3(scaled(weights[i], by)).bits;
      return;
    }
    for (int i = 0; i < size_; ++i) {
      const float value = scaled(weights[i], by);
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
      std::uint32_t code = bits >> 28 & 8u;
      for (const float limit : e2m1_limits) code += magnitude > limit ? 1u : 0u;
      codes[i] = static_cast<std::uint8_t>(code);
    }
  }

  const packed_weights& to_;
  int size_;
  float of_tensor_ = 1;
};

}  // namespace tessera::kernels::quantized::cpu
