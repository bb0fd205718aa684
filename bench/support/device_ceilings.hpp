// What a GPU can do at most, measured: multiply-adds with nothing but independent chains, matrix
// products of cuBLAS where it can be loaded, reading and copying its memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

#include "bench/support/device_kernels.hpp"
#include "bench/support/gpu_stopwatch.hpp"

namespace tessera::bench {

/// Measured limits. A multiply-add counts as two operations; a copy counts the bytes read and the
/// bytes written.
struct device_ceilings {
  double fma_f32_gflops = 0;
  double mma_bf16_gflops = 0;  ///< mma.sync, which rows of cuda_sm80 are made of
  double mma_tf32_gflops = 0;
  double read_gbytes = 0;
  double copy_gbytes = 0;
  std::size_t buffer_bytes = 0;  ///< what the bandwidths were measured over

  /// The most that products of that type can reach: f32 takes three products of tf32, or the
  /// vector lanes.
  double peak_gflops(dtype type) const noexcept {
    if (type != dtype::f32) return mma_bf16_gflops;
    return mma_tf32_gflops / 3 > fma_f32_gflops ? mma_tf32_gflops / 3 : fma_f32_gflops;
  }
};

/// Short measurements of single limits, to be taken between the rounds of something else. Refuses
/// everything in a build without CUDA.
class device_probe {
 public:
  /// Takes 512 MiB of the device, or four times its cache; `watch` must outlive it.
  static result<device_probe> make(gpu_stopwatch& watch);

  /// GFLOP/s of chains of that many steps on every lane.
  result<double> product_gflops(device_product kind, int steps);
  /// GB/s of one pass over the memory.
  result<double> read_gbytes();
  result<double> copy_gbytes();
  std::size_t buffer_bytes() const noexcept { return memory_.size(); }

 private:
  device_probe(gpu_stopwatch& watch, const device_facts& facts, device_buffer memory)
      : watch_(&watch), multiprocessors_(facts.multiprocessors), memory_(std::move(memory)) {}

  gpu_stopwatch* watch_;
  int multiprocessors_;
  device_buffer memory_;
};

/// The best of a few probes each, after one that warms up. About a tenth of a second.
result<device_ceilings> measure_ceilings(device_probe& probe);
/// The same with a stopwatch and a probe of its own.
result<device_ceilings> measure_ceilings_of(device_id gpu);

}  // namespace tessera::bench
