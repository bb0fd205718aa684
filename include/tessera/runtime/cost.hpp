// The cost model: what a row would take for a problem, from a handful of numbers that every family
// can give. It ranks rows; it does not promise times.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Floating point operations per cycle and core of the product loop. Two vector multiply-adds per
/// cycle for AVX2 and AVX-512 (Zen 4 runs a 512-bit one on two 256-bit pipes, hence not 64; its
/// VDPBF16PS does two multiply-adds per lane, VPDPBUSD four), two separate 4-lane multiplies and
/// adds for SSE2. A core does 1024 with TDPBF16PS, at two thirds of the clock that is taken for
/// granted below.
constexpr double flops_per_cycle(backend target) noexcept {
  switch (target) {
    case backend::cpu_generic:
      return 8;
    case backend::cpu_avx2:
      return 32;
    case backend::cpu_avx512:
      return 36;
    case backend::cpu_avx512_vnni:
      return 144;
    case backend::cpu_avx512_bf16:
      return 72;
    case backend::cpu_amx_bf16:
      return 640;
    case backend::cuda_sm80:  // of a multiprocessor; 16-bit elements
      return 2048;
    case backend::cuda_sm90:
      return 4096;
  }
  return 1;
}

/// The same of a core of that device. One VDPBF16PS a cycle is taken for granted: a processor that
/// starts them half as often as multiply-adds has pipes for two 512-bit ones of these.
constexpr double flops_per_cycle(backend target, const device_facts& device) noexcept {
  if (target == backend::cpu_avx512_vnni) {
    return 4 * flops_per_cycle(backend::cpu_avx512, device);
  }
  if (target != backend::cpu_avx512 || device.bf16_dot_percent <= 0) return flops_per_cycle(target);
  return flops_per_cycle(backend::cpu_avx512_bf16) / 2 * 100 / device.bf16_dot_percent;
}

/// `work_estimate::most_products` of a row on that device: numbers of VDPBF16PS are those of
/// processors that start as many of them as multiply-adds.
constexpr double most_products_of(const work_estimate& work, backend target,
                                  const device_facts& device) noexcept {
  const bool known = target == backend::cpu_avx512_bf16 && device.bf16_dot_percent > 0;
  return known ? work.most_products * device.bf16_dot_percent / 100 : work.most_products;
}

/// Bytes of the last-level caches that so many threads share among them, packed as tightly as they
/// go: caches of further clusters may be out of reach.
constexpr double last_level_bytes(const device_facts& device, int threads) noexcept {
  if (device.l3_bytes == 0) return static_cast<double>(device.l2_bytes) * std::max(1, threads);
  const int sharers = device.l3_threads > 0 ? device.l3_threads : std::max(1, threads);
  return static_cast<double>(device.l3_bytes) * std::max(1, (threads + sharers - 1) / sharers);
}

/// Seconds that `work` takes on so many multiprocessors of a GPU. The slower of products and
/// memory, in waves of thread blocks.
constexpr double predicted_seconds_on_gpu(const work_estimate& work, backend target,
                                          const device_facts& device,
                                          int multiprocessors) noexcept {
  // Lanes of a multiprocessor; part of the bandwidth that copies reach (H200: 4264 of 4917 GB/s);
  // seconds until the first instruction of a launch.
  constexpr double lanes = 128;
  constexpr double bandwidth_share = 0.87;
  constexpr double launch_seconds = 3e-6;

  const double cores = std::max(1, multiprocessors);
  const double clock = 1e3 * std::max(1, device.core_clock_khz);
  const double slots = cores * work.items_per_core;
  const auto blocks = static_cast<double>(work.items * work.splits);
  if (blocks <= 0) return launch_seconds;
  const auto waves = static_cast<double>(static_cast<std::int64_t>((blocks + slots - 1) / slots));
  // Blocks that have a multiprocessor to themselves are faster, but less than twice as fast as two.
  const double busy = blocks / (waves * slots);
  const double used = busy * (1.5 - 0.5 * busy);
  const double products = work.flops / (flops_per_cycle(target) * work.product_share);
  const double computing = (products + work.vector_operations / lanes) / (cores * clock * used);
  const double bandwidth = bandwidth_share * device.memory_bytes_per_second();
  const double moving = bandwidth > 0 ? work.bytes / (bandwidth * std::min(1.0, 2 * busy)) : 0;
  const double both = std::max(computing, moving) + 0.1 * std::min(computing, moving);
  return both + launch_seconds * work.launches;
}

/// Seconds that `work` takes on `threads` threads, of a GPU multiprocessors. The slower of products
/// and memory, after the elementwise part, in whole waves of work items.
constexpr double predicted_seconds(const work_estimate& work, backend target,
                                   const device_facts& device, int threads) noexcept {
  if (is_cuda(target)) return predicted_seconds_on_gpu(work, target, device, threads);
  // A server core of the AVX-512 generation: clock under vector load, bytes per second that one
  // core and one socket stream (STREAM-like reads, Zen 4), and the start of a parallel region.
  constexpr double clock = 3.4e9;
  constexpr double core_bandwidth = 20e9;
  constexpr double socket_bandwidth = 200e9;
  constexpr double region_seconds = 2e-6;
  constexpr double item_seconds = 0.3e-6;
  // Of the time that memory takes: 16 MiB written to a cache of 32 MiB at 120 GB/s, Zen 4, two
  // threads, against 28 GB/s to memory.
  constexpr double cached_share = 0.25;

  const int workers = std::max(1, std::min(threads, device.available_threads));
  const double busy = static_cast<double>(std::min<std::int64_t>(workers, work.items));
  double rate = flops_per_cycle(target, device) * work.product_share;
  const double most_products = most_products_of(work, target, device);
  if (most_products > 0) rate = std::min(rate, most_products);
  double products = work.flops / (rate * clock);
  const auto cache = static_cast<double>(device.l2_bytes);
  // Of 1 MiB (Zen 4), 835 KB of tile still run at full rate (d256, 224 x 128; see bench/results).
  if (cache > 0 && work.tile_bytes > 0.85 * cache) products *= 1.15;
  const double elementwise = work.vector_operations / (2.0 * vector_floats(target) * clock);
  const double bandwidth = std::min(core_bandwidth * busy, socket_bandwidth * device.sockets);
  const std::int64_t rounds = (work.items + workers - 1) / workers;
  const auto waves = static_cast<double>(rounds);
  const double idle = waves * busy / static_cast<double>(work.items);
  const double computing = (products + elementwise) / busy;
  const bool in_cache =
      work.footprint_bytes > 0 && work.footprint_bytes <= last_level_bytes(device, workers);
  const double moved = work.bytes * (in_cache ? cached_share : 1.0) + work.streamed_bytes;
  const double moving = moved / bandwidth;
  // A tenth of the faster part stays uncovered: among rows that memory holds back alike, the one
  // with less to compute wins.
  const double both = std::max(computing, moving) + 0.1 * std::min(computing, moving);
  return both * std::max(idle, 1.0) + waves * item_seconds + (workers > 1 ? region_seconds : 0.0);
}

}  // namespace tessera
