// The scale that numbers are divided by before they are rounded to 8 bits, where it follows from
// the numbers themselves. Host and device have the same bits.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim {

/// The largest number of a code whose negative is one too.
template <class Code>
inline constexpr float largest_code = std::is_same_v<Code, f8_e4m3>   ? 448.0f
                                      : std::is_same_v<Code, f8_e5m2> ? 57344.0f
                                                                      : 127.0f;

/// The larger of `largest` and |x|; x does not count if it is infinite or NaN.
TESSERA_HD TESSERA_INLINE constexpr float largest_finite(float largest, float x) noexcept {
  const float size = x < 0.0f ? -x : x;
  return size > largest && size <= std::numeric_limits<float>::max() ? size : largest;
}

/// The scale of numbers of which `largest` is the largest finite size, and which are divided by
/// `factor` too: the largest becomes the largest code. Neither 0 nor subnormal, whatever they are.
template <class Code>
TESSERA_HD TESSERA_INLINE constexpr float code_scale(float largest, float factor) noexcept {
  constexpr float least = std::numeric_limits<float>::min();
  constexpr float most = std::numeric_limits<float>::max();
  const float scale = largest / factor / largest_code<Code>;
  return scale < least ? least : scale > most ? most : scale;
}

}  // namespace tessera::prim
