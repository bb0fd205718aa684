// Sixteen floats: AVX-512 F, BW, DQ, VL; with AVX512-BF16 also the dot product of bf16 pairs. See
// simd.hpp for what each function does.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/exp2_polynomial.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd_generic.hpp>
#include <tessera/spec/dtype.hpp>

// GCC 12 warns about the deliberately undefined operands inside its own intrinsics (GCC bug
// 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tessera::prim {

template <>
struct simd<isa::avx512> {
  static constexpr int width = 16;
  using reg = __m512;

  static TESSERA_INLINE reg zero() { return _mm512_setzero_ps(); }
  static TESSERA_INLINE reg broadcast(float x) { return _mm512_set1_ps(x); }
  static TESSERA_INLINE reg load(const float* p) { return _mm512_loadu_ps(p); }
  static TESSERA_INLINE reg load_n(const float* p, int n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
  }
  static TESSERA_INLINE void store(float* p, reg x) { _mm512_storeu_ps(p, x); }
  static TESSERA_INLINE void store_n(float* p, reg x, int n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
  }
  static TESSERA_INLINE reg add(reg a, reg b) { return _mm512_add_ps(a, b); }
  static TESSERA_INLINE reg sub(reg a, reg b) { return _mm512_sub_ps(a, b); }
  static TESSERA_INLINE reg mul(reg a, reg b) { return _mm512_mul_ps(a, b); }
  static TESSERA_INLINE reg div(reg a, reg b) { return _mm512_div_ps(a, b); }
  static TESSERA_INLINE reg fma(reg a, reg b, reg c) { return _mm512_fmadd_ps(a, b, c); }
  /// fma of the float at `a`, broadcast as it is read: compilers use an instruction of its own.
  static TESSERA_INLINE reg fma_at(const float* a, reg b, reg c) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
  }
  static TESSERA_INLINE reg bit_or(reg a, reg b) { return _mm512_or_ps(a, b); }
  static TESSERA_INLINE reg max(reg a, reg b) { return _mm512_max_ps(a, b); }
  static TESSERA_INLINE reg select_below(reg a, reg b, reg x, reg y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }

  /// VREDUCEPS gives x - floor(x), VSCALEFPS multiplies by 2^floor(x) and underflows by itself.
  static TESSERA_INLINE reg exp2(reg x) {
    using namespace exp2_polynomial;
    const reg f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    reg p = _mm512_fmadd_ps(f, _mm512_set1_ps(c5), _mm512_set1_ps(c4));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(c3));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(c2));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(c1));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(c0));
    return _mm512_scalef_ps(p, x);
  }

  static TESSERA_INLINE reg load_as(const float* p) { return load(p); }
  static TESSERA_INLINE reg load_as(const f16* p) { return from_f16(_mm256_loadu_si256(words(p))); }
  static TESSERA_INLINE reg load_as(const bf16* p) {
    return from_bf16(_mm256_loadu_si256(words(p)));
  }
  static TESSERA_INLINE reg load_as_n(const float* p, int n) { return load_n(p, n); }
  static TESSERA_INLINE reg load_as_n(const f16* p, int n) {
    return from_f16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
  }
  static TESSERA_INLINE reg load_as_n(const bf16* p, int n) {
    return from_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
  }
  static TESSERA_INLINE void store_as(float* p, reg x) { store(p, x); }
  static TESSERA_INLINE void store_as(f16* p, reg x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_f16(x));
  }
  static TESSERA_INLINE void store_as(bf16* p, reg x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x));
  }
  static TESSERA_INLINE void store_as_n(float* p, reg x, int n) { store_n(p, x, n); }
  static TESSERA_INLINE void store_as_n(f16* p, reg x, int n) {
    _mm256_mask_storeu_epi16(p, first_lanes(n), to_f16(x));
  }
  static TESSERA_INLINE void store_as_n(bf16* p, reg x, int n) {
    _mm256_mask_storeu_epi16(p, first_lanes(n), to_bf16(x));
  }

  static TESSERA_INLINE float first(reg x) { return _mm512_cvtss_f32(x); }
  static TESSERA_INLINE float sum(reg x) { return _mm512_reduce_add_ps(x); }
  static TESSERA_INLINE float maximum(reg x) { return _mm512_reduce_max_ps(x); }

  static TESSERA_INLINE reg sums(const reg (&r)[16]) {
    return fold(r, [](reg a, reg b) { return _mm512_add_ps(a, b); });
  }
  static TESSERA_INLINE reg maxima(const reg (&r)[16]) {
    return fold(r, [](reg a, reg b) { return _mm512_max_ps(a, b); });
  }

  static TESSERA_INLINE void transpose(reg (&r)[16]) {
    reg t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    // r[4a + b], lane c: column 4c + b of rows 4a ... 4a + 3. A 4 x 4 transpose of lanes remains.
    for (int i = 0; i < 4; ++i) {
      const reg low0 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x44);
      const reg high0 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xee);
      const reg low1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x44);
      const reg high1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xee);
      t[i] = _mm512_shuffle_f32x4(low0, low1, 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(low0, low1, 0xdd);
      t[i + 8] = _mm512_shuffle_f32x4(high0, high1, 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(high0, high1, 0xdd);
    }
    for (int i = 0; i < 16; ++i) r[i] = t[i];
  }

 private:
  static TESSERA_INLINE __mmask16 first_lanes(int n) {
    return static_cast<__mmask16>((1u << n) - 1u);
  }
  template <class Element>
  static TESSERA_INLINE const __m256i* words(const Element* p) {
    return reinterpret_cast<const __m256i*>(p);
  }
  static TESSERA_INLINE reg from_f16(__m256i half) { return _mm512_cvtph_ps(half); }
  static TESSERA_INLINE reg from_bf16(__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  /// Pairwise folding: registers 2i and 2i+1 share a register after each step.
  template <class Operation>
  static TESSERA_INLINE reg fold(const reg (&r)[16], const Operation& both) {
    reg a[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = both(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]),
                  _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
    }
    reg b[4];
    for (int i = 0; i < 4; ++i) {
      b[i] = both(_mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),
                  _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
    }
    // b[i] holds, in each 128-bit lane, partial results of registers 4i ... 4i + 3.
    const reg c0 =
        both(_mm512_shuffle_f32x4(b[0], b[1], 0x88), _mm512_shuffle_f32x4(b[0], b[1], 0xdd));
    const reg c1 =
        both(_mm512_shuffle_f32x4(b[2], b[3], 0x88), _mm512_shuffle_f32x4(b[2], b[3], 0xdd));
    return both(_mm512_shuffle_f32x4(c0, c1, 0x88), _mm512_shuffle_f32x4(c0, c1, 0xdd));
  }
  static TESSERA_INLINE __m256i to_f16(reg x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static TESSERA_INLINE __m256i to_bf16(reg x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
  }
};

/// The same registers; the bf16 instructions appear in dot.hpp.
template <>
struct simd<isa::avx512_vnni> : simd<isa::avx512> {};
template <>
struct simd<isa::avx512_bf16> : simd<isa::avx512> {};

}  // namespace tessera::prim

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
