// Four floats in plain C++: what the portable rows are made of. Compilers turn the loops into
// whatever vectors the baseline has.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/exp2_polynomial.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim {

template <class Isa>
struct simd;

template <>
struct simd<isa::generic> {
  static constexpr int width = 4;
  struct reg {
    float lane[4];
  };

  template <class Function>
  static TESSERA_INLINE reg each(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }

  static TESSERA_INLINE reg zero() { return {}; }
  static TESSERA_INLINE reg broadcast(float x) { return {{x, x, x, x}}; }
  static TESSERA_INLINE reg load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static TESSERA_INLINE reg load_n(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static TESSERA_INLINE void store(float* p, reg x) {
    for (int i = 0; i < width; ++i) p[i] = x.lane[i];
  }
  static TESSERA_INLINE void store_n(float* p, reg x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.lane[i];
  }
  static TESSERA_INLINE reg add(reg a, reg b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static TESSERA_INLINE reg sub(reg a, reg b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static TESSERA_INLINE reg mul(reg a, reg b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static TESSERA_INLINE reg div(reg a, reg b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static TESSERA_INLINE reg fma(reg a, reg b, reg c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static TESSERA_INLINE reg bit_or(reg a, reg b) {
    return each([&](int i) {
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.lane[i]) |
                                  std::bit_cast<std::uint32_t>(b.lane[i]));
    });
  }
  static TESSERA_INLINE reg max(reg a, reg b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static TESSERA_INLINE reg select_below(reg a, reg b, reg x, reg y) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
  }

  static TESSERA_INLINE reg exp2(reg x) {
    return each([&](int i) { return exp2_of(x.lane[i]); });
  }

  template <class Element>
  static TESSERA_INLINE reg load_as(const Element* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  template <class Element>
  static TESSERA_INLINE reg load_as_n(const Element* p, int n) {
    return each([&](int i) { return i < n ? static_cast<float>(p[i]) : 0.0f; });
  }
  template <class Element>
  static TESSERA_INLINE void store_as(Element* p, reg x) {
    for (int i = 0; i < width; ++i) p[i] = static_cast<Element>(x.lane[i]);
  }
  template <class Element>
  static TESSERA_INLINE void store_as_n(Element* p, reg x, int n) {
    for (int i = 0; i < n; ++i) p[i] = static_cast<Element>(x.lane[i]);
  }

  static TESSERA_INLINE float first(reg x) { return x.lane[0]; }
  static TESSERA_INLINE float sum(reg x) {
    return (x.lane[0] + x.lane[1]) + (x.lane[2] + x.lane[3]);
  }
  static TESSERA_INLINE float maximum(reg x) {
    float best = x.lane[0];
    for (int i = 1; i < width; ++i) best = best > x.lane[i] ? best : x.lane[i];
    return best;
  }
  static TESSERA_INLINE reg sums(const reg (&rows)[width]) {
    return each([&](int i) { return sum(rows[i]); });
  }
  static TESSERA_INLINE reg maxima(const reg (&rows)[width]) {
    return each([&](int i) { return maximum(rows[i]); });
  }
  static TESSERA_INLINE void transpose(reg (&rows)[width]) {
    for (int i = 0; i < width; ++i) {
      for (int j = 0; j < i; ++j) {
        const float swap = rows[i].lane[j];
        rows[i].lane[j] = rows[j].lane[i];
        rows[j].lane[i] = swap;
      }
    }
  }

 private:
  /// Adding 1.5 * 2^23 leaves round(x) in the low mantissa bits, ready to be moved to the exponent.
  static TESSERA_INLINE float exp2_of(float x) {
    using namespace exp2_polynomial;
    constexpr float magic = 12582912.0f;
    const float clamped = x < -126.0f ? -126.0f : x;
    float whole = (clamped + magic) - magic;
    whole = whole > clamped ? whole - 1.0f : whole;
    const float f = clamped - whole;
    const float p = c0 + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * c5))));
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(whole + magic) << 23;
    const float power = std::bit_cast<float>(exponent + 0x3f800000u);
    return x < -126.0f ? 0.0f : p * power;
  }
};

}  // namespace tessera::prim
