// Counts entries of tensors in the current device's memory that break their rules. Included by one
// generated unit of builds with CUDA, which nvcc compiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/runtime/impl/content_rules.hpp>
#include <tessera/runtime/impl/cuda/answer.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl::cuda {

namespace {

constexpr int counting_threads = 256;
constexpr std::int64_t most_counting_blocks = 1024;

/// Threads share the entries; a warp adds up what its lanes find.
__global__ void __launch_bounds__(counting_threads)
    count_faults_kernel(const __grid_constant__ content_rule rule, unsigned long long* faults) {
  const std::int64_t entries = entries_of(rule);
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * counting_threads;
  unsigned found = 0;
  for (std::int64_t entry = static_cast<std::int64_t>(blockIdx.x) * counting_threads + threadIdx.x;
       entry < entries; entry += threads) {
    found += is_fault(rule, entry) ? 1u : 0u;
  }
  found = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && found != 0) {
    atomicAdd(faults, static_cast<unsigned long long>(found));
  }
}

}  // namespace

status count_faults(const content_rule& rule, std::uint64_t* faults, void* stream) {
  static_assert(sizeof(unsigned long long) == sizeof *faults);
  const std::int64_t blocks = (entries_of(rule) + counting_threads - 1) / counting_threads;
  const auto grid = static_cast<unsigned>(std::min(blocks, most_counting_blocks));
  if (grid == 0) return {};
  count_faults_kernel<<<grid, counting_threads, 0, static_cast<cudaStream_t>(stream)>>>(
      rule, reinterpret_cast<unsigned long long*>(faults));
  return answer_of("counting faults", cudaGetLastError());
}

}  // namespace tessera::impl::cuda
