// Reading and copying memory as fast as the machine goes. No access pattern is best everywhere, so
// there are several; the ceilings take the one that wins here. Sequential streams use the hardware
// prefetchers, several of them keep more misses in flight, software prefetches help where the
// hardware stops at page borders.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::bench::streams {

/// Folds `bytes` (a multiple of 4096) from `from` (64-byte aligned) into one word.
using read_function = std::uint64_t (*)(const std::byte* from, std::size_t bytes);
/// Copies `bytes` (a multiple of 4096) between 64-byte aligned addresses.
using copy_function = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

struct read_pattern {
  std::string_view name;
  read_function run = nullptr;
};

/// Streams x four words of 64 bits at a time.
template <int Streams>
std::uint64_t read_portable(const std::byte* from, std::size_t bytes) {
  const auto* word = reinterpret_cast<const std::uint64_t*>(from);
  const std::size_t part = bytes / Streams / sizeof(std::uint64_t);
  std::uint64_t fold[4] = {};
  for (std::size_t at = 0; at + 4 <= part; at += 4) {
    for (std::size_t stream = 0; stream < Streams; ++stream) {
      for (std::size_t k = 0; k < 4; ++k) fold[k] ^= word[stream * part + at + k];
    }
  }
  return fold[0] ^ fold[1] ^ fold[2] ^ fold[3];
}

inline void copy_by_library(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
/// `Streams` pieces read side by side, 256 bytes of each at a time; `Ahead` bytes before they are
/// needed lines are asked for (0: the hardware decides alone).
template <int Streams, int Ahead>
__attribute__((target("avx512f"))) std::uint64_t read_avx512(const std::byte* from,
                                                             std::size_t bytes) {
  const std::size_t part = bytes / Streams;
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t at = 0; at + 256 <= part; at += 256) {
    for (int stream = 0; stream < Streams; ++stream) {
      const std::byte* line = from + static_cast<std::size_t>(stream) * part + at;
      if constexpr (Ahead > 0) {
        for (int k = 0; k < 256; k += 64) _mm_prefetch(line + Ahead + k, _MM_HINT_T0);
      }
      a = _mm512_xor_si512(a, _mm512_load_si512(line));
      b = _mm512_xor_si512(b, _mm512_load_si512(line + 64));
      c = _mm512_xor_si512(c, _mm512_load_si512(line + 128));
      d = _mm512_xor_si512(d, _mm512_load_si512(line + 192));
    }
  }
  std::uint64_t lane[8];
  _mm512_storeu_si512(lane, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return lane[0] ^ lane[7];
}

template <int Streams, int Ahead>
__attribute__((target("avx2"))) std::uint64_t read_avx2(const std::byte* from, std::size_t bytes) {
  const std::size_t part = bytes / Streams;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (std::size_t at = 0; at + 128 <= part; at += 128) {
    for (int stream = 0; stream < Streams; ++stream) {
      const std::byte* line = from + static_cast<std::size_t>(stream) * part + at;
      if constexpr (Ahead > 0) {
        _mm_prefetch(line + Ahead, _MM_HINT_T0);
        _mm_prefetch(line + Ahead + 64, _MM_HINT_T0);
      }
      const auto* word = reinterpret_cast<const __m256i*>(line);
      a = _mm256_xor_si256(a, word[0]);
      b = _mm256_xor_si256(b, word[1]);
      c = _mm256_xor_si256(c, word[2]);
      d = _mm256_xor_si256(d, word[3]);
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

/// Stores that pass the caches by.
__attribute__((target("avx2"))) inline void copy_past_caches(std::byte* to, const std::byte* from,
                                                             std::size_t bytes) {
  for (std::size_t at = 0; at + 128 <= bytes; at += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(from + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    for (int part = 0; part < 4; ++part) _mm256_stream_si256(target + part, source[part]);
  }
  _mm_sfence();
}
#endif

inline constexpr std::size_t pattern_count = 4;

/// The candidates of the widest instruction set that runs here.
inline std::array<read_pattern, pattern_count> read_patterns() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return {{{"1 stream", read_avx512<1, 0>},
             {"1 stream, prefetched", read_avx512<1, 512>},
             {"2 streams", read_avx512<2, 0>},
             {"2 streams, prefetched", read_avx512<2, 2048>}}};
  }
  if (__builtin_cpu_supports("avx2")) {
    return {{{"1 stream", read_avx2<1, 0>},
             {"1 stream, prefetched", read_avx2<1, 512>},
             {"2 streams", read_avx2<2, 0>},
             {"2 streams, prefetched", read_avx2<2, 2048>}}};
  }
#endif
  return {{{"1 stream", read_portable<1>},
           {"2 streams", read_portable<2>},
           {"4 streams", read_portable<4>},
           {"8 streams", read_portable<8>}}};
}

inline std::array<copy_function, 2> copy_patterns() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return {copy_by_library, copy_past_caches};
#endif
  return {copy_by_library, nullptr};
}

}  // namespace tessera::bench::streams
