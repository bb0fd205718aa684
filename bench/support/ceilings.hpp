// What this machine can do at most, measured: multiply-adds in f32 and bf16 with nothing but
// independent register chains, and memory bandwidth for reading and for copying. The widest
// instruction set is found at run time and its functions carry target attributes, so the file needs
// no compiler flags. Every percentage that the tools and the benches print refers to these numbers,
// taken in the same run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <omp.h>

#include "bench/support/memory.hpp"
#include "bench/support/timing.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::bench {

/// Measured limits of the machine. A multiply-add counts as two operations; a copy counts the bytes
/// read and the bytes written.
struct ceilings {
  int threads = 0;
  std::string_view isa;          ///< what the f32 chains were run with: avx512, avx2 or portable
  double fma_f32_gflops = 0;     ///< all threads
  double bf16_dot_gflops = 0;    ///< all threads; 0 where the machine has no bf16 dot product
  double fma_f32_one_core = 0;   ///< one thread
  double read_gbytes = 0;        ///< GB/s, all threads, from memory
  double read_one_core = 0;      ///< GB/s, one thread
  double copy_gbytes = 0;        ///< GB/s, all threads, memory to memory
  std::size_t buffer_bytes = 0;  ///< what the bandwidths were measured over
};

namespace chains {

/// A measured loop: runs `rounds` rounds of its chains and returns something that depends on all.
using chain_function = float (*)(std::int64_t rounds);

/// A chain loop and the floating point operations of one of its rounds.
struct chain_loop {
  chain_function run = nullptr;
  double operations_per_round = 0;
};

// The factor just below one keeps every chain bounded and away from subnormals. Chains start from
// different values, or the compiler would see that they are one.
inline constexpr float factor = 0.99975f;
inline constexpr float summand = 0.25f;

inline float portable(std::int64_t rounds) {
  float chain[16];
  for (int one = 0; one < 16; ++one) chain[one] = static_cast<float>(one);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (float& one : chain) one = one * factor + summand;
  }
  float sum = 0;
  for (const float one : chain) sum += one;
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
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) inline float bf16_dot(
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
#endif

}  // namespace chains

namespace streams {

/// Folds `bytes` (a multiple of 4096) from `from` into one word.
using read_function = std::uint64_t (*)(const std::byte* from, std::size_t bytes);
/// Copies `bytes` (a multiple of 4096) past the caches.
using copy_function = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

inline std::uint64_t read_portable(const std::byte* from, std::size_t bytes) {
  const auto* word = reinterpret_cast<const std::uint64_t*>(from);
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  for (std::size_t at = 0; at + 4 <= bytes / 8; at += 4) {
    a ^= word[at], b ^= word[at + 1], c ^= word[at + 2], d ^= word[at + 3];
  }
  return a ^ b ^ c ^ d;
}

inline void copy_portable(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
// Four streams keep more misses in flight than one, whatever the prefetchers do.
__attribute__((target("avx2"))) inline std::uint64_t read_avx2(const std::byte* from,
                                                               std::size_t bytes) {
  const auto* w = reinterpret_cast<const __m256i*>(from);
  const std::size_t quarter = bytes / 4 / sizeof(__m256i);
  const __m256i *x = w + quarter, *y = x + quarter, *z = y + quarter;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (std::size_t at = 0; at + 2 <= quarter; at += 2) {
    a = _mm256_xor_si256(_mm256_xor_si256(a, w[at]), w[at + 1]);
    b = _mm256_xor_si256(_mm256_xor_si256(b, x[at]), x[at + 1]);
    c = _mm256_xor_si256(_mm256_xor_si256(c, y[at]), y[at + 1]);
    d = _mm256_xor_si256(_mm256_xor_si256(d, z[at]), z[at + 1]);
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

__attribute__((target("avx512f"))) inline std::uint64_t read_avx512(const std::byte* from,
                                                                    std::size_t bytes) {
  const auto* w = reinterpret_cast<const __m512i*>(from);
  const std::size_t quarter = bytes / 4 / sizeof(__m512i);
  const __m512i *x = w + quarter, *y = x + quarter, *z = y + quarter;
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t at = 0; at + 2 <= quarter; at += 2) {
    a = _mm512_ternarylogic_epi64(a, w[at], w[at + 1], 0x96);
    b = _mm512_ternarylogic_epi64(b, x[at], x[at + 1], 0x96);
    c = _mm512_ternarylogic_epi64(c, y[at], y[at + 1], 0x96);
    d = _mm512_ternarylogic_epi64(d, z[at], z[at + 1], 0x96);
  }
  std::uint64_t lane[8];
  _mm512_storeu_si512(lane, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return lane[0] ^ lane[7];
}

__attribute__((target("avx2"))) inline void copy_avx2(std::byte* to, const std::byte* from,
                                                      std::size_t bytes) {
  for (std::size_t at = 0; at + 128 <= bytes; at += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(from + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    for (int part = 0; part < 4; ++part) _mm256_stream_si256(target + part, source[part]);
  }
  _mm_sfence();
}
#endif

}  // namespace streams

/// The loops of the widest instruction set this processor and operating system offer.
struct ceiling_loops {
  std::string_view isa = "portable";
  chains::chain_loop fma{chains::portable, 2.0 * 16};
  chains::chain_loop bf16_dot{};
  streams::read_function read = streams::read_portable;
  streams::copy_function copy = streams::copy_portable;
};

inline ceiling_loops widest_loops() {
  ceiling_loops loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    loops = {"avx2", {chains::avx2, 2.0 * 12 * 8}, {}, streams::read_avx2, streams::copy_avx2};
  }
  if (__builtin_cpu_supports("avx512f")) {
    loops.isa = "avx512";
    loops.fma = {chains::avx512, 2.0 * 12 * 16};
    loops.read = streams::read_avx512;
  }
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")) {
    loops.bf16_dot = {chains::bf16_dot, 2.0 * 12 * 32};
  }
#endif
  return loops;
}

namespace detail {

// Keeps results alive across translation units without a volatile store in the measured loop.
inline void keep(std::uint64_t value) {
  static std::atomic<std::uint64_t> kept;
  kept.store(value, std::memory_order_relaxed);
}

/// GFLOP/s of a chain loop on `threads` threads: the median of rounds of about `round_seconds`,
/// after the clock had as long to settle.
inline double rate_of(const chains::chain_loop& loop, int threads, double round_seconds,
                      std::size_t rounds) {
  if (loop.run == nullptr) return 0;
  constexpr std::int64_t probe = 200'000;
  const double start = now_seconds();
  keep(static_cast<std::uint64_t>(loop.run(probe)));
  const double per_round = std::max(now_seconds() - start, 1e-9) / static_cast<double>(probe);
  const auto count = static_cast<std::int64_t>(round_seconds / per_round) + 1;
  const timing measured =
      measure({.warm_ups = 2, .min_rounds = rounds, .max_rounds = rounds}, [&](std::size_t) {
        float sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        sum += loop.run(count);
        keep(static_cast<std::uint64_t>(sum));
      });
  return loop.operations_per_round * static_cast<double>(count) * threads / measured.median * 1e-9;
}

/// GB/s of `work(begin, count)` over a buffer split among `threads` threads. The lower quartile
/// decides: a neighbour on a shared memory bus can only slow a round down.
template <class Work>
double bandwidth_of(std::size_t bytes, double counted_bytes, int threads, std::size_t rounds,
                    const Work& work) {
  const timing measured =
      measure({.warm_ups = 1, .min_rounds = rounds, .max_rounds = rounds}, [&](std::size_t) {
#pragma omp parallel num_threads(threads)
        {
          const auto team = static_cast<std::size_t>(omp_get_num_threads());
          const auto me = static_cast<std::size_t>(omp_get_thread_num());
          const std::size_t share = bytes / team / 4096 * 4096;
          work(me * share, share);
        }
      });
  return counted_bytes / measured.lower_quartile * 1e-9;
}

}  // namespace detail

/// Measures everything; takes about a second. `threads` 0: what OpenMP would use.
inline ceilings measure_ceilings(int threads = 0) {
  const ceiling_loops loops = widest_loops();
  ceilings found;
  found.threads = threads > 0 ? threads : omp_get_max_threads();
  found.isa = loops.isa;
  found.fma_f32_gflops = detail::rate_of(loops.fma, found.threads, 0.02, 7);
  found.bf16_dot_gflops = detail::rate_of(loops.bf16_dot, found.threads, 0.02, 7);
  found.fma_f32_one_core = detail::rate_of(loops.fma, 1, 0.02, 3);

  constexpr std::size_t bytes = std::size_t{256} << 20;
  const buffer memory(bytes);
  std::byte* const data = memory.data();
  detail::bandwidth_of(bytes, 0, found.threads, 1, [&](std::size_t begin, std::size_t count) {
    std::memset(data + begin, 1, count);
  });
  const auto read = [&](std::size_t begin, std::size_t count) {
    detail::keep(loops.read(data + begin, count));
  };
  const auto copy = [&](std::size_t begin, std::size_t count) {
    loops.copy(data + bytes / 2 + begin, data + begin, count);
  };
  found.buffer_bytes = bytes;
  found.read_gbytes =
      detail::bandwidth_of(bytes, static_cast<double>(bytes), found.threads, 9, read);
  found.read_one_core = detail::bandwidth_of(bytes, static_cast<double>(bytes), 1, 5, read);
  found.copy_gbytes =
      detail::bandwidth_of(bytes / 2, static_cast<double>(bytes), found.threads, 9, copy);
  return found;
}

}  // namespace tessera::bench
