// What this machine can do at most, measured: multiply-adds with nothing but independent register
// chains (chains.hpp), reading and copying memory (streams.hpp). Every percentage that the tools
// and the benches print refers to these numbers, taken in the same run; the benches take them again
// next to every timed round (`limit_probe`), because a shared machine is not the same for long.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include <omp.h>

#include "bench/support/chains.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/streams.hpp"
#include "bench/support/timing.hpp"

namespace tessera::bench {

/// Measured limits of the machine. A multiply-add counts as two operations; a copy counts the bytes
/// read and the bytes written.
struct ceilings {
  int threads = 0;
  std::string_view isa;           ///< what the f32 chains were run with: avx512, avx2 or portable
  double clock_ghz = 0;           ///< of one core while it adds; 0 where there is no such loop
  double fma_f32_gflops = 0;      ///< all threads
  double fma_avx2_gflops = 0;     ///< all threads, registers of eight f32; 0 without AVX2
  double bf16_dot_gflops = 0;     ///< all threads; 0 where the machine has no bf16 dot product
  double byte_dot_gops = 0;       ///< all threads; 0 where the machine has no dot product of bytes
  double amx_bf16_gflops = 0;     ///< all threads; 0 where this process has no tile registers
  double fma_f32_one_core = 0;    ///< one thread
  double read_gbytes = 0;         ///< GB/s, all threads, from memory
  double read_one_core = 0;       ///< GB/s, one thread
  double copy_gbytes = 0;         ///< GB/s, all threads, memory to memory, the better of two ways
  double round_trip_ns = 0;       ///< of a cache line between two threads; 0 with one thread
  std::string_view read_pattern;  ///< the access pattern that read fastest
  std::size_t buffer_bytes = 0;   ///< what the bandwidths were measured over
};

namespace detail {

// Keeps results alive across translation units without a volatile store in the measured loop.
inline void keep(std::uint64_t value) {
  static std::atomic<std::uint64_t> kept;
  kept.store(value, std::memory_order_relaxed);
}

/// Runs `work(thread)` on `threads` threads that start together; seconds from the first start to
/// the last end. Waking the threads is not part of it. The team is never smaller than the largest:
/// threads that it does not need would end, and those that take their places would start where the
/// first one is pinned.
template <class Work>
double seconds_together(int threads, const Work& work) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  const int team = std::max(threads, omp_get_max_threads());
#pragma omp parallel num_threads(team) reduction(min : begin) reduction(max : end)
  {
#pragma omp barrier
    if (omp_get_thread_num() < threads) {
      begin = now_seconds();
      work(static_cast<std::size_t>(omp_get_thread_num()));
      end = now_seconds();
    }
  }
  return end - begin;
}

}  // namespace detail

/// Short measurements of single limits, to be taken between the rounds of something else. Owns the
/// memory that is read, which is far larger than the caches and read piece after piece.
class limit_probe {
 public:
  static constexpr double chain_seconds = 1.5e-3;
  static constexpr std::size_t piece_bytes = std::size_t{12} << 20;  ///< of one thread

  explicit limit_probe(int threads)
      : threads_(threads),
        bytes_(std::max(std::size_t{256} << 20, 8 * last_level_cache_bytes())),
        memory_(bytes_) {
    share_ = bytes_ / static_cast<std::size_t>(threads_) / piece_bytes * piece_bytes;
    detail::seconds_together(threads_, [&](std::size_t thread) {
      std::memset(memory_.data() + thread * share_, 1, share_);
    });
    settle();
    choose_pattern();
  }

  int threads() const noexcept { return threads_; }
  std::size_t buffer_bytes() const noexcept { return bytes_; }
  const streams::read_pattern& pattern() const noexcept { return pattern_; }

  /// GFLOP/s of a chain loop on `threads` threads; 0 for a loop that cannot run here.
  double rate_of(const chains::chain_loop& loop, int threads) {
    if (loop.run == nullptr) return 0;
    constexpr double nominal = 100e9;  // of one core: sets the length of the measurement
    const auto rounds =
        static_cast<std::int64_t>(chain_seconds * nominal / loop.operations_per_round);
    const double seconds = detail::seconds_together(
        threads, [&](std::size_t) { detail::keep(static_cast<std::uint64_t>(loop.run(rounds))); });
    return loop.operations_per_round * static_cast<double>(rounds) * threads / seconds * 1e-9;
  }

  /// GB/s of reading the next piece of every thread.
  double read_rate(int threads) { return read_rate(pattern_, threads); }

  /// GB/s of copying one piece into another, bytes read plus bytes written.
  double copy_rate(streams::copy_function copy, int threads) {
    if (copy == nullptr) return 0;
    const std::size_t from = next_offset();
    const std::size_t to = (from + share_ / 2 / piece_bytes * piece_bytes) % share_;
    const double seconds = detail::seconds_together(threads, [&](std::size_t thread) {
      std::byte* mine = memory_.data() + thread * share_;
      copy(mine + to, mine + from, piece_bytes);
    });
    return 2.0 * static_cast<double>(piece_bytes) * threads / seconds * 1e-9;
  }

  /// Nanoseconds in which a cache line goes from one thread to a second and back. It tells how near
  /// the cores are that a virtual machine runs on: those of one core, of one chiplet or of two,
  /// between which bandwidths differ by a factor of two. 0 with one thread, and where threads
  /// share a core in turns, so that it takes far too long.
  double round_trip() {
    if (threads_ < 2) return 0;
    constexpr int rounds = 1000;
    constexpr double most_seconds = 5e-3;
    struct {
      alignas(128) std::atomic<int> turn{0};
      alignas(128) std::atomic<bool> late{false};
    } line;
    const double seconds = detail::seconds_together(2, [&](std::size_t thread) {
      const double begin = now_seconds();
      for (int turn = static_cast<int>(thread); turn < 2 * rounds; turn += 2) {
        while (line.turn.load(std::memory_order_acquire) != turn) {
          if (line.late.load(std::memory_order_relaxed)) return;
        }
        const bool looks_at_the_clock = turn % 128 < 2;
        if (looks_at_the_clock && now_seconds() - begin > most_seconds) line.late.store(true);
        line.turn.store(turn + 1, std::memory_order_release);
      }
    });
    return line.late ? 0 : seconds / rounds * 1e9;
  }

  /// GHz of one core.
  double clock() {
    if (chains::cycles_per_round == 0) return 0;
    constexpr std::int64_t rounds = 200'000;
    const double start = now_seconds();
    detail::keep(static_cast<std::uint64_t>(chains::multiplications(rounds)));
    return chains::cycles_per_round * rounds / (now_seconds() - start) * 1e-9;
  }

 private:
  std::size_t next_offset() {
    offset_ += piece_bytes;
    if (offset_ + piece_bytes > share_) offset_ = 0;
    return offset_;
  }

  double read_rate(const streams::read_pattern& pattern, int threads) {
    const std::size_t offset = next_offset();
    const double seconds = detail::seconds_together(threads, [&](std::size_t thread) {
      detail::keep(pattern.run(memory_.data() + thread * share_ + offset, piece_bytes));
    });
    return static_cast<double>(piece_bytes) * threads / seconds * 1e-9;
  }

  /// Runs multiply-adds until the clock no longer changes: three measurements within 1 %, or a
  /// third of a second.
  void settle() {
    const chains::chain_loop loop = chains::fma();
    double last = 0, before = 0;
    for (const double begin = now_seconds(); now_seconds() - begin < 0.33;) {
      const double rate = rate_of(loop, threads_);
      const auto near = [rate](double other) { return std::fabs(rate - other) < 0.01 * rate; };
      if (near(last) && near(before) && now_seconds() - begin > 0.05) return;
      before = last;
      last = rate;
    }
  }

  void choose_pattern() {
    double best = 0;
    for (const streams::read_pattern& candidate : streams::read_patterns()) {
      std::vector<double> rates;
      for (int round = 0; round < 7; ++round) rates.push_back(read_rate(candidate, threads_));
      const double rate = statistics_of(std::move(rates)).median;
      if (rate > best) {
        best = rate;
        pattern_ = candidate;
      }
    }
  }

  int threads_;
  std::size_t bytes_;
  std::size_t share_ = 0;   // of one thread
  std::size_t offset_ = 0;  // of the piece read last, in every share
  buffer memory_;
  streams::read_pattern pattern_;
};

/// Measures everything with a probe; takes about half a second. Kinds are taken in turn. A
/// neighbour on a shared machine can only slow a round down: of multiply-adds the best round
/// decides, of bandwidths, which vary by themselves, the upper quartile.
inline ceilings measure_ceilings(limit_probe& probe) {
  constexpr int rounds = 15;
  const int threads = probe.threads();
  const std::array loops{chains::fma(), chains::fma_avx2(), chains::bf16_dot()};
  const auto copies = streams::copy_patterns();
  std::array<std::vector<double>, 12> rates;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t kind = 0; kind < loops.size(); ++kind) {
      rates[kind].push_back(probe.rate_of(loops[kind], threads));
    }
    rates[3].push_back(probe.rate_of(loops[0], 1));
    rates[4].push_back(probe.read_rate(threads));
    rates[5].push_back(probe.read_rate(1));
    rates[6].push_back(probe.copy_rate(copies[0], threads));
    rates[7].push_back(probe.copy_rate(copies[1], threads));
    rates[8].push_back(probe.clock());
    rates[9].push_back(probe.round_trip());
    rates[10].push_back(probe.rate_of(chains::amx_bf16(), threads));
    rates[11].push_back(probe.rate_of(chains::byte_dot(), threads));
  }
  const auto best = [&](std::size_t kind) { return statistics_of(rates[kind]).max; };
  const auto usual = [&](std::size_t kind) { return statistics_of(rates[kind]).upper_quartile; };
  ceilings limits;
  limits.threads = threads;
  limits.isa = loops[0].isa;
  limits.fma_f32_gflops = best(0);
  limits.fma_avx2_gflops = best(1);
  limits.bf16_dot_gflops = best(2);
  limits.amx_bf16_gflops = best(10);
  limits.byte_dot_gops = best(11);
  limits.fma_f32_one_core = best(3);
  limits.read_gbytes = usual(4);
  limits.read_one_core = usual(5);
  limits.copy_gbytes = std::max(usual(6), usual(7));
  limits.clock_ghz = best(8);
  limits.round_trip_ns = statistics_of(rates[9]).median;
  limits.read_pattern = probe.pattern().name;
  limits.buffer_bytes = probe.buffer_bytes();
  return limits;
}

/// The same with a probe of its own. `threads` 0: what OpenMP would use.
inline ceilings measure_ceilings(int threads = 0) {
  limit_probe probe(threads > 0 ? threads : omp_get_max_threads());
  return measure_ceilings(probe);
}

}  // namespace tessera::bench
