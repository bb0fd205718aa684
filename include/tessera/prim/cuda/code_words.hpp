// Elements of 8 bits (f8_e4m3, f8_e5m2, i8) as elements of 16 or 32 bits, two at a time, in
// registers. f16 holds each of their numbers exactly and bf16 too, so nothing is rounded; NaN stays
// NaN.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim::cuda {

/// True for the types of elements that are widened here.
constexpr bool is_code_type(dtype type) noexcept {
  return type == dtype::f8_e4m3 || type == dtype::f8_e5m2 || type == dtype::i8;
}

/// Words of four f8_e4m3, of compute capability 8.9 on.
struct e4m3_words {
  /// Rounded to nearest even, too large ones to the largest; `a` in the lowest byte.
  static __device__ __forceinline__ std::uint32_t pack(float a, float b, float c, float d) {
    std::uint32_t word;
    asm("{ .reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high}; }"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
  }
  static __device__ __forceinline__ float unpack(std::uint8_t bits) {
    f8_e4m3 element;
    element.bits = bits;
    return static_cast<float>(element);
  }
};

/// Calls body with an element of the type, which is f8_e4m3, f8_e5m2 or i8.
template <class Body>
__device__ __forceinline__ auto with_code_type(dtype type, const Body& body) {
  if (type == dtype::f8_e4m3) return body(f8_e4m3{});
  if (type == dtype::f8_e5m2) return body(f8_e5m2{});
  return body(std::int8_t{});
}

/// Two elements, in the lower half of `pair`, as f16: the first one in the lower half.
template <class Code>
__device__ __forceinline__ std::uint32_t halves_of(std::uint32_t pair) {
  std::uint32_t halves;
  if constexpr (std::is_same_v<Code, std::int8_t>) {
    // Behind 1024 a mantissa of f16 counts ones: 1024 + (x + 128), less 1152.
    halves = __byte_perm(pair ^ 0x8080u, 0x64u, 0x4140u);
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(halves) : "r"(0x64806480u));
  } else if constexpr (std::is_same_v<Code, f8_e5m2>) {
    halves = __byte_perm(pair, 0, 0x1404u);
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
#else
    // Exponents are biased by 15 instead of 7: times 2^8.
    const std::uint32_t bytes = __byte_perm(pair, 0, 0x1404u);
    const std::uint32_t magnitude = (bytes & 0x7f007f00u) >> 1;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(magnitude), "r"(0x5c005c00u));
    if ((magnitude & 0xffffu) == 0x3f80u) halves |= 0x7fffu;
    if (magnitude >> 16 == 0x3f80u) halves |= 0x7fff0000u;
    halves |= bytes & 0x80008000u;
#endif
  }
  return halves;
}

/// Four elements as two words of f16: elements 0 and 1, 2 and 3 (`Apart`: 0 and 2, 1 and 3).
template <class Code, bool Apart = false>
__device__ __forceinline__ uint2 halves_of_four(std::uint32_t four) {
  if constexpr (std::is_same_v<Code, std::int8_t>) {
    const std::uint32_t moved = four ^ 0x80808080u;
    uint2 halves{__byte_perm(moved, 0x64u, Apart ? 0x4240u : 0x4140u),
                 __byte_perm(moved, 0x64u, Apart ? 0x4341u : 0x4342u)};
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(halves.x) : "r"(0x64806480u));
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(halves.y) : "r"(0x64806480u));
    return halves;
  } else if constexpr (std::is_same_v<Code, f8_e5m2>) {
    return {__byte_perm(four, 0, Apart ? 0x2404u : 0x1404u),
            __byte_perm(four, 0, Apart ? 0x3414u : 0x3424u)};
  } else {
    if constexpr (Apart) four = __byte_perm(four, 0, 0x3120u);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    // Of both halves of a register without a shift.
    uint2 halves;
    asm("{ .reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(halves.x), "=r"(halves.y)
        : "r"(four));
    return halves;
#else
    return {halves_of<Code>(four), halves_of<Code>(four >> 16)};
#endif
  }
}

/// Two elements, in the lower half of `pair`, as floats.
template <class Code>
__device__ __forceinline__ float2 floats_of(std::uint32_t pair) {
  const std::uint32_t halves = halves_of<Code>(pair);
  return {half_words<f16>::unpack(static_cast<std::uint16_t>(halves)),
          half_words<f16>::unpack(static_cast<std::uint16_t>(halves >> 16))};
}

/// Two elements, in the lower half of `pair`, as elements of 16 bits: the first one in the lower
/// half.
template <class Code, class Element>
__device__ __forceinline__ std::uint32_t widened_pair(std::uint32_t pair) {
  if constexpr (std::is_same_v<Element, f16>) {
    return halves_of<Code>(pair);
  } else if constexpr (std::is_same_v<Code, std::int8_t>) {
    // Behind 128 a mantissa of bf16 counts ones: 128 + (x without its sign), less 128 or 256.
    const std::uint32_t bytes = __byte_perm(pair, 0x43u, 0x4140u);
    std::uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(sum)
        : "r"(bytes & 0xff7fff7fu), "r"(0x3f803f80u), "r"((bytes & 0xff80ff80u) ^ 0x80008000u));
    return sum;
  } else {
    const float2 both = floats_of<Code>(pair);
    return half_words<Element>::pack(both.x, both.y);
  }
}

/// Eight elements of 8 bits (f32: four, in codes.x) as 16 bytes of elements.
template <class Code, class Element>
__device__ __forceinline__ void widen(std::uint32_t (&words)[4], uint2 codes) {
  if constexpr (std::is_same_v<Element, float>) {
    const float2 first = floats_of<Code>(codes.x);
    const float2 second = floats_of<Code>(codes.x >> 16);
    words[0] = __float_as_uint(first.x), words[1] = __float_as_uint(first.y);
    words[2] = __float_as_uint(second.x), words[3] = __float_as_uint(second.y);
  } else {
    words[0] = widened_pair<Code, Element>(codes.x);
    words[1] = widened_pair<Code, Element>(codes.x >> 16);
    words[2] = widened_pair<Code, Element>(codes.y);
    words[3] = widened_pair<Code, Element>(codes.y >> 16);
  }
}

/// The first `count` of `Count` (4 or 8) elements of 8 bits, zeros behind them; nothing is read
/// where count is not positive. `whole`: they lie at a multiple of Count bytes.
template <int Count>
__device__ __forceinline__ uint2 load_codes(const unsigned char* from, int count, bool whole) {
  uint2 codes{0, 0};
  if (whole && count >= Count) {
    if constexpr (Count == 8) {
      return *reinterpret_cast<const uint2*>(from);
    } else {
      codes.x = *reinterpret_cast<const std::uint32_t*>(from);
      return codes;
    }
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if (i >= count) break;
    (i < 4 ? codes.x : codes.y) |= static_cast<std::uint32_t>(from[i]) << (8 * (i % 4));
  }
  return codes;
}

/// Of each byte of a word the highest bit: the byte's element is infinite or NaN.
template <class Code>
__device__ __forceinline__ std::uint32_t not_finite_codes(std::uint32_t word) {
  if constexpr (std::is_same_v<Code, std::int8_t>) return 0;
  // Magnitudes from 0x7f, or 0x7c, on: a sum that reaches the highest bit.
  constexpr std::uint32_t up = std::is_same_v<Code, f8_e4m3> ? 0x01010101u : 0x04040404u;
  return ((word & 0x7f7f7f7fu) + up) & 0x80808080u;
}
template <class Code>
__device__ __forceinline__ bool any_code_not_finite(std::uint32_t word) {
  return not_finite_codes<Code>(word) != 0;
}
/// `word` with 0 in the place of elements that are infinite or NaN.
template <class Code>
__device__ __forceinline__ std::uint32_t finite_codes(std::uint32_t word) {
  return word & ~((not_finite_codes<Code>(word) >> 7) * 0xffu);
}

/// A number rounded to a type of 8 bits.
__device__ __forceinline__ float rounded_to_code(dtype type, float x) {
  return with_code_type(
      type, [x](auto code) -> float { return prim::float_of(prim::nearest<decltype(code)>(x)); });
}

}  // namespace tessera::prim::cuda
