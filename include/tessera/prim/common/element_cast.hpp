// Elements of every storage type as floats, and floats as elements: what reads and writes caches
// that are narrower than the arithmetic. Host and device have the same bits, but for the payload of
// a NaN of 16 bits.
//
// | to | how |
// |---|---|
// | f32 | as it is |
// | f16, bf16 | to the nearest, ties to even; too large: infinite |
// | f8_e4m3, f8_e5m2 | likewise; too large: the largest finite number; NaN: 0x7f |
// | i8 | to the nearest whole number, ties to even; too large: 127 or -128; NaN: 0 |
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim {

/// A float as a whole number of 8 bits.
TESSERA_INLINE constexpr std::int8_t nearest_i8(float x) noexcept {
  // Above 2^23 a float has no fraction: the sum is rounded there, to even.
  constexpr float anchor = 12582912.0f;
  const float low = x < -128.0f ? -128.0f : x;
  const float clamped = low > 127.0f ? 127.0f : low;
  const std::uint32_t code =
      std::bit_cast<std::uint32_t>(clamped + anchor) - std::bit_cast<std::uint32_t>(anchor);
  return static_cast<std::int8_t>(x == x ? code : 0u);  // NOLINT: false for NaN
}

/// The value of an element.
template <class Element>
TESSERA_INLINE constexpr float float_of(Element x) noexcept {
  return static_cast<float>(x);
}

/// The element next to a value.
template <class Element>
TESSERA_INLINE constexpr Element nearest(float x) noexcept {
  if constexpr (std::is_same_v<Element, std::int8_t>) {
    return nearest_i8(x);
  } else {
    return Element(x);
  }
}

}  // namespace tessera::prim
