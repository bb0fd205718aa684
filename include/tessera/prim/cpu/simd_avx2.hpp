// Eight floats: AVX2, FMA and F16C. See simd.hpp for what each function does.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/exp2_polynomial.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd_generic.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim {

template <>
struct simd<isa::avx2> {
  static constexpr int width = 8;
  using reg = __m256;

  static TESSERA_INLINE reg zero() { return _mm256_setzero_ps(); }
  static TESSERA_INLINE reg broadcast(float x) { return _mm256_set1_ps(x); }
  static TESSERA_INLINE reg load(const float* p) { return _mm256_loadu_ps(p); }
  static TESSERA_INLINE reg load_n(const float* p, int n) {
    return _mm256_maskload_ps(p, first_lanes(n));
  }
  static TESSERA_INLINE void store(float* p, reg x) { _mm256_storeu_ps(p, x); }
  static TESSERA_INLINE void store_n(float* p, reg x, int n) {
    _mm256_maskstore_ps(p, first_lanes(n), x);
  }
  static TESSERA_INLINE reg add(reg a, reg b) { return _mm256_add_ps(a, b); }
  static TESSERA_INLINE reg sub(reg a, reg b) { return _mm256_sub_ps(a, b); }
  static TESSERA_INLINE reg mul(reg a, reg b) { return _mm256_mul_ps(a, b); }
  static TESSERA_INLINE reg div(reg a, reg b) { return _mm256_div_ps(a, b); }
  static TESSERA_INLINE reg fma(reg a, reg b, reg c) { return _mm256_fmadd_ps(a, b, c); }
  static TESSERA_INLINE reg bit_or(reg a, reg b) { return _mm256_or_ps(a, b); }
  static TESSERA_INLINE reg max(reg a, reg b) { return _mm256_max_ps(a, b); }
  static TESSERA_INLINE reg select_below(reg a, reg b, reg x, reg y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }

  static TESSERA_INLINE reg exp2(reg x) {
    using namespace exp2_polynomial;
    const reg low = _mm256_set1_ps(-126.0f);
    const reg clamped = _mm256_max_ps(low, x);
    const reg whole = _mm256_floor_ps(clamped);
    const reg f = _mm256_sub_ps(clamped, whole);
    reg p = _mm256_fmadd_ps(f, _mm256_set1_ps(c5), _mm256_set1_ps(c4));
    p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(c3));
    p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(c2));
    p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(c1));
    p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(c0));
    const __m256i exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(whole), _mm256_set1_epi32(127)), 23);
    const reg scaled = _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), scaled);
  }

  static TESSERA_INLINE reg load_as(const float* p) { return load(p); }
  static TESSERA_INLINE reg load_as(const f16* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static TESSERA_INLINE reg load_as(const bf16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static TESSERA_INLINE reg load_as_n(const float* p, int n) { return load_n(p, n); }
  template <class Element>
  static TESSERA_INLINE reg load_as_n(const Element* p, int n) {
    alignas(16) Element lanes[8]{};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load_as(lanes);
  }
  static TESSERA_INLINE void store_as(float* p, reg x) { store(p, x); }
  static TESSERA_INLINE void store_as(f16* p, reg x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static TESSERA_INLINE void store_as(bf16* p, reg x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1)));
  }
  static TESSERA_INLINE void store_as_n(float* p, reg x, int n) { store_n(p, x, n); }
  template <class Element>
  static TESSERA_INLINE void store_as_n(Element* p, reg x, int n) {
    alignas(16) Element lanes[8];
    store_as(lanes, x);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }

  static TESSERA_INLINE float first(reg x) { return _mm256_cvtss_f32(x); }
  static TESSERA_INLINE float sum(reg x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static TESSERA_INLINE float maximum(reg x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static TESSERA_INLINE reg sums(const reg (&r)[8]) {
    const reg a = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
    const reg b = _mm256_hadd_ps(_mm256_hadd_ps(r[4], r[5]), _mm256_hadd_ps(r[6], r[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  static TESSERA_INLINE reg maxima(const reg (&r)[8]) {
    reg t[8];
    for (int i = 0; i < 8; ++i) t[i] = r[i];
    transpose(t);
    for (int step = 4; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) t[i] = max(t[i], t[i + step]);
    }
    return t[0];
  }
  static TESSERA_INLINE void transpose(reg (&r)[8]) {
    reg t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    reg u[8];
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }

 private:
  static TESSERA_INLINE __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace tessera::prim
