// Multiply-adds with nothing but independent register chains: the most that an instruction set
// gives. The functions carry target attributes, so the file needs no compiler flags; which of them
// may run is found out by `chains::fma`, `chains::fma_avx2`, `chains::bf16_dot`,
// `chains::byte_dot` and `chains::amx_bf16`.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/runtime/device_facts.hpp>

namespace tessera::bench {

namespace chains {

/// A measured loop: runs `rounds` rounds of its chains and returns something that depends on all.
using chain_function = float (*)(std::int64_t rounds);

/// A chain loop and the floating point operations of one of its rounds.
struct chain_loop {
  chain_function run = nullptr;
  double operations_per_round = 0;
  std::string_view isa{};  ///< what it is compiled for
};

// The factor just below one keeps every chain bounded and away from subnormals. Chains start from
// different values, or the compiler would see that they are one.
inline constexpr float factor = 0.99975f;
inline constexpr float summand = 0.25f;

inline float portable(std::int64_t rounds) {
  float chain[16];
  for (int number = 0; number < 16; ++number) chain[number] = static_cast<float>(number);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (float& value : chain) value = value * factor + summand;
  }
  float sum = 0;
  for (const float value : chain) sum += value;
  return sum;
}

#if defined(__x86_64__)
// Twelve chains cover two units of latency five; more would spill with sixteen registers.
__attribute__((target("avx2,fma"))) inline float avx2(std::int64_t rounds) {
  const __m256 f = _mm256_set1_ps(factor), s = _mm256_set1_ps(summand);
  __m256 a = s, b = a + s, c = b + s, d = c + s, e = d + s, g = e + s, h = g + s, i = h + s;
  __m256 j = i + s, k = j + s, l = k + s, m = l + s;
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = _mm256_fmadd_ps(a, f, s), b = _mm256_fmadd_ps(b, f, s), c = _mm256_fmadd_ps(c, f, s);
    d = _mm256_fmadd_ps(d, f, s), e = _mm256_fmadd_ps(e, f, s), g = _mm256_fmadd_ps(g, f, s);
    h = _mm256_fmadd_ps(h, f, s), i = _mm256_fmadd_ps(i, f, s), j = _mm256_fmadd_ps(j, f, s);
    k = _mm256_fmadd_ps(k, f, s), l = _mm256_fmadd_ps(l, f, s), m = _mm256_fmadd_ps(m, f, s);
  }
  const __m256 sum = a + b + c + d + e + g + h + i + j + k + l + m;
  float lane[8];
  _mm256_storeu_ps(lane, sum);
  return lane[0] + lane[7];
}

__attribute__((target("avx512f"))) inline float avx512(std::int64_t rounds) {
  const __m512 f = _mm512_set1_ps(factor), s = _mm512_set1_ps(summand);
  __m512 a = s, b = a + s, c = b + s, d = c + s, e = d + s, g = e + s, h = g + s, i = h + s;
  __m512 j = i + s, k = j + s, l = k + s, m = l + s;
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = _mm512_fmadd_ps(a, f, s), b = _mm512_fmadd_ps(b, f, s), c = _mm512_fmadd_ps(c, f, s);
    d = _mm512_fmadd_ps(d, f, s), e = _mm512_fmadd_ps(e, f, s), g = _mm512_fmadd_ps(g, f, s);
    h = _mm512_fmadd_ps(h, f, s), i = _mm512_fmadd_ps(i, f, s), j = _mm512_fmadd_ps(j, f, s);
    k = _mm512_fmadd_ps(k, f, s), l = _mm512_fmadd_ps(l, f, s), m = _mm512_fmadd_ps(m, f, s);
  }
  const __m512 sum = a + b + c + d + e + g + h + i + j + k + l + m;
  float lane[16];
  _mm512_storeu_ps(lane, sum);
  return lane[0] + lane[15];
}

// The operands are small powers of two, so that no accumulator leaves the normal range.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) inline float bf16_dots(
    std::int64_t rounds) {
  const auto x = (__m512bh)_mm512_set1_epi16(0x2f80);  // 2^-32
  const auto y = (__m512bh)_mm512_set1_epi16(0x3f80);  // 1
  const __m512 s = _mm512_set1_ps(summand);
  __m512 a = s, b = a + s, c = b + s, d = c + s, e = d + s, g = e + s, h = g + s, i = h + s;
  __m512 j = i + s, k = j + s, l = k + s, m = l + s;
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = _mm512_dpbf16_ps(a, x, y), b = _mm512_dpbf16_ps(b, x, y), c = _mm512_dpbf16_ps(c, x, y);
    d = _mm512_dpbf16_ps(d, x, y), e = _mm512_dpbf16_ps(e, x, y), g = _mm512_dpbf16_ps(g, x, y);
    h = _mm512_dpbf16_ps(h, x, y), i = _mm512_dpbf16_ps(i, x, y), j = _mm512_dpbf16_ps(j, x, y);
    k = _mm512_dpbf16_ps(k, x, y), l = _mm512_dpbf16_ps(l, x, y), m = _mm512_dpbf16_ps(m, x, y);
  }
  const __m512 sum = a + b + c + d + e + g + h + i + j + k + l + m;
  float lane[16];
  _mm512_storeu_ps(lane, sum);
  return lane[0] + lane[15];
}

/// Sums of products of bytes wrap around.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) inline float byte_dots(
    std::int64_t rounds) {
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5), s = _mm512_set1_epi32(1);
  __m512i a = s, b = a + s, c = b + s, d = c + s, e = d + s, g = e + s, h = g + s, i = h + s;
  __m512i j = i + s, k = j + s, l = k + s, m = l + s;
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = _mm512_dpbusd_epi32(a, x, y), b = _mm512_dpbusd_epi32(b, x, y);
    c = _mm512_dpbusd_epi32(c, x, y), d = _mm512_dpbusd_epi32(d, x, y);
    e = _mm512_dpbusd_epi32(e, x, y), g = _mm512_dpbusd_epi32(g, x, y);
    h = _mm512_dpbusd_epi32(h, x, y), i = _mm512_dpbusd_epi32(i, x, y);
    j = _mm512_dpbusd_epi32(j, x, y), k = _mm512_dpbusd_epi32(k, x, y);
    l = _mm512_dpbusd_epi32(l, x, y), m = _mm512_dpbusd_epi32(m, x, y);
  }
  return static_cast<float>(_mm512_reduce_add_epi32(a + b + c + d + e + g + h + i + j + k + l + m));
}

/// Four products of AMX tiles whose operands stay in registers. They hold numbers: products of
/// zeros are faster than any others. The assembler needs no compiler flags.
inline float tile_products(std::int64_t rounds) {
  using tiles = prim::hardware_tiles;
  alignas(64) float words[prim::tile_rows * prim::tile_width];
  const std::int64_t stride = sizeof(float) * prim::tile_width;
  for (float& word : words) word = std::bit_cast<float>(0x2f802f80u);  // 2^-32, twice
  const prim::tile_scope<tiles> scope;
  tiles::load<0>(words, stride), tiles::load<1>(words, stride);
  tiles::load<2>(words, stride), tiles::load<3>(words, stride);
  tiles::load<4>(words, stride), tiles::load<5>(words, stride);
  tiles::load<6>(words, stride), tiles::load<7>(words, stride);
  for (std::int64_t round = 0; round < rounds; ++round) {
    tiles::multiply_add<0, 4, 6>(), tiles::multiply_add<1, 4, 7>();
    tiles::multiply_add<2, 5, 6>(), tiles::multiply_add<3, 5, 7>();
  }
  tiles::store<3>(words, stride);
  return words[0] + words[prim::tile_rows * prim::tile_width - 1];
}

/// Dependent multiplications, three cycles each on Intel and AMD cores since 2008: what is measured
/// is the clock. (Some cores add constants while renaming, several a cycle.)
inline std::int64_t multiplications(std::int64_t rounds) {
  std::int64_t product = 1;
  const std::int64_t three = 3;
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile(
        "imul %1, %0\n\timul %1, %0\n\timul %1, %0\n\timul %1, %0\n\t"
        "imul %1, %0\n\timul %1, %0\n\timul %1, %0\n\timul %1, %0"
        : "+r"(product)
        : "r"(three));
  }
  return product;
}
#endif

/// f32 multiply-adds of eight lanes; null loop without AVX2.
inline chain_loop fma_avx2() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {avx2, 2.0 * 12 * 8, "avx2"};
  }
#endif
  return {};
}

/// f32 multiply-adds of the widest instruction set that runs here.
inline chain_loop fma() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {avx512, 2.0 * 12 * 16, "avx512"};
#endif
  const chain_loop eight = fma_avx2();
  return eight.run != nullptr ? eight : chain_loop{portable, 2.0 * 16, "portable"};
}

/// VDPBF16PS; null loop where the processor lacks it.
inline chain_loop bf16_dot() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")) {
    return {bf16_dots, 2.0 * 12 * 32, "avx512_bf16"};
  }
#endif
  return {};
}

/// VPDPBUSD; null loop where the processor lacks it.
inline chain_loop byte_dot() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) {
    return {byte_dots, 2.0 * 12 * 64, "avx512_vnni"};
  }
#endif
  return {};
}

/// TDPBF16PS; null loop where this process has no tile registers.
inline chain_loop amx_bf16() {
#if defined(__x86_64__)
  if (this_device().tiles == tile_access::granted) {
    return {tile_products, 4.0 * 2 * 16 * 16 * 32, "amx_bf16"};
  }
#endif
  return {};
}

/// Cycles of one round of `multiplications`; 0 where there is no such loop.
#if defined(__x86_64__)
inline constexpr double cycles_per_round = 8 * 3;
#else
inline constexpr double cycles_per_round = 0;
inline std::int64_t multiplications(std::int64_t rounds) {
  return rounds;
}
#endif

}  // namespace chains

}  // namespace tessera::bench
