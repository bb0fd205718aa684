// Element types: the enumeration used in problems and configs, the two 16-bit storage types with
// exact conversions, and the mapping from C++ types to enumerators.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Type of one tensor element. `none` marks an absent tensor.
enum class dtype : std::uint8_t {
  none,
  f32,
  f16,
  bf16,
  f64,
  i32,
  i64,
  u8,
  f8_e4m3,
  f8_e5m2,
  i8,
  u32,
  f8_e8m0,  ///< a power of two: the scale of a block
  u4x2,     ///< two codes of 4 bits in a byte, the lower one first
};

/// "f32", "bf16", ...: the spelling used in row names, problem text and messages.
inline constexpr std::array<std::string_view, 14> dtype_names{
    "none", "f32",     "f16",     "bf16", "f64", "i32",     "i64",
    "u8",   "f8_e4m3", "f8_e5m2", "i8",   "u32", "f8_e8m0", "u4x2"};
constexpr std::string_view name_of(dtype type) noexcept {
  const auto number = static_cast<std::size_t>(type);
  return number < dtype_names.size() ? dtype_names[number] : "invalid";
}

/// Bytes of one element; 0 for `none`.
constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::none:
      return 0;
    case dtype::u8:
    case dtype::i8:
    case dtype::u4x2:
    case dtype::f8_e4m3:
    case dtype::f8_e5m2:
    case dtype::f8_e8m0:
      return 1;
    case dtype::f16:
    case dtype::bf16:
      return 2;
    case dtype::f32:
    case dtype::i32:
    case dtype::u32:
      return 4;
    case dtype::f64:
    case dtype::i64:
      return 8;
  }
  return 0;
}

/// True for the types that q, k, v and out may have.
constexpr bool is_floating_16_or_32(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

/// bfloat16 storage: the upper half of an IEEE binary32. Rounds to nearest even, NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  constexpr explicit bf16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
               : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE binary16 storage. Rounds to nearest even, overflows to infinity, keeps subnormals and NaN.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  constexpr explicit f16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more, or is infinite
      half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // normal: rebias the exponent by 127 - 15
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {  // subnormal: adding 0.5 leaves the value, rounded to 2^-24, in the low bits
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
    if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float tiny = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(tiny) | sign);
  }
};

/// The enumerator of a C++ element type. Specialise it to pass your own 16-bit types to `view`.
template <class Element>
struct dtype_of;
template <dtype Type>
struct dtype_constant {
  static constexpr dtype value = Type;
};
template <>
struct dtype_of<float> : dtype_constant<dtype::f32> {};
template <>
struct dtype_of<double> : dtype_constant<dtype::f64> {};
template <>
struct dtype_of<f16> : dtype_constant<dtype::f16> {};
template <>
struct dtype_of<bf16> : dtype_constant<dtype::bf16> {};
template <>
struct dtype_of<std::int32_t> : dtype_constant<dtype::i32> {};
template <>
struct dtype_of<std::int64_t> : dtype_constant<dtype::i64> {};
template <>
struct dtype_of<std::uint8_t> : dtype_constant<dtype::u8> {};
template <>
struct dtype_of<std::int8_t> : dtype_constant<dtype::i8> {};
template <>
struct dtype_of<std::uint32_t> : dtype_constant<dtype::u32> {};
template <>
struct dtype_of<bool> : dtype_constant<dtype::u8> {};

/// The storage type of q, k, v and out for an enumerator.
template <dtype Type>
struct element_of;
template <>
struct element_of<dtype::f32> {
  using type = float;
};
template <>
struct element_of<dtype::f16> {
  using type = f16;
};
template <>
struct element_of<dtype::bf16> {
  using type = bf16;
};
template <dtype Type>
using element_t = typename element_of<Type>::type;

}  // namespace tessera
