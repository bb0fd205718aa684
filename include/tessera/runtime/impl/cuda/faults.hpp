// Counts entries of tensors in the current device's memory that break their rules. Included by one
// generated unit of builds with CUDA, which nvcc compiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/prim/common/content_rules.hpp>
#include <tessera/runtime/impl/cuda/answer.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl::cuda {

namespace {

using prim::content_rule;
namespace content_rules = prim::content_rules;

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

/// How many entries in use hold each page.
__global__ void __launch_bounds__(counting_threads)
    count_uses_kernel(const __grid_constant__ content_rule rule, std::uint32_t* uses) {
  using namespace content_rules;  // NOLINT: how tables are read
  const std::int64_t slots = rule.numbers.extent[1];
  const std::int64_t entries = entries_in_use(rule, rule.numbers.extent[0], rule.beyond) * slots;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * counting_threads;
  for (std::int64_t entry = static_cast<std::int64_t>(blockIdx.x) * counting_threads + threadIdx.x;
       entry < entries; entry += threads) {
    const std::int64_t page = page_in_use(rule, entry / slots, entry % slots);
    if (page >= 0) atomicAdd(uses + page, 1u);
  }
}

/// The first entry in use that holds each number of a list.
__global__ void __launch_bounds__(counting_threads)
    find_first_uses_kernel(const __grid_constant__ content_rule rule, std::int32_t* first_uses) {
  const std::int64_t apart = rule.apart.present() ? rule.apart.extent[0] : 0;
  const std::int64_t entries = rule.numbers.extent[0];
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * counting_threads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * counting_threads + threadIdx.x;
       at < apart + entries; at += threads) {
    const std::int64_t entry = at - apart;
    const std::int64_t number = entry < 0 ? rule.apart.at(at) : rule.numbers.at(entry);
    const bool used = entry < 0 || rule.holds != tensor_contents::slots ||
                      content_rules::rows_of(rule.used_by, entry) > 0;
    if (!used || number < 0 || number >= rule.limit) continue;
    atomicMin(first_uses + number, entry < 0 ? -1 : static_cast<std::int32_t>(entry));
  }
}

/// Who holds which numbers of a large table or list, in memory of the stream, so that a number that
/// is there twice is found without comparing all entries. Without that memory they are compared.
class number_uses {
  static constexpr std::int64_t least_entries = 4096;
  static constexpr std::int64_t most_numbers = std::int64_t{1} << 26;

 public:
  number_uses(content_rule& rule, unsigned grid, cudaStream_t stream) : stream_(stream) {
    const bool table =
        rule.holds == tensor_contents::page_numbers && rule.written && !rule.of_lengths;
    const bool list = rule.holds == tensor_contents::slots ||
                      (rule.holds == tensor_contents::indices && rule.apart.present());
    if (!(table || list) || entries_of(rule) < least_entries || rule.limit <= 0 ||
        rule.limit > most_numbers) {
      return;
    }
    // Above every entry of a list, whatever its byte is repeated to.
    constexpr int behind_all = 0x7f;
    const std::size_t bytes = static_cast<std::size_t>(rule.limit) * sizeof(std::int32_t);
    if (cudaMallocAsync(&memory_, bytes, stream) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      memory_ = nullptr;
      return;
    }
    if (cudaMemsetAsync(memory_, table ? 0 : behind_all, bytes, stream) != cudaSuccess) return;
    if (table) {
      auto* const uses = static_cast<std::uint32_t*>(memory_);
      count_uses_kernel<<<grid, counting_threads, 0, stream>>>(rule, uses);
      rule.uses = uses;
    } else {
      auto* const first_uses = static_cast<std::int32_t*>(memory_);
      find_first_uses_kernel<<<grid, counting_threads, 0, stream>>>(rule, first_uses);
      rule.first_uses = first_uses;
    }
  }
  ~number_uses() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
  }
  number_uses(const number_uses&) = delete;
  number_uses& operator=(const number_uses&) = delete;

 private:
  void* memory_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace

status count_faults(const prim::content_rule& rule, std::uint64_t* faults, void* stream) {
  static_assert(sizeof(unsigned long long) == sizeof *faults);
  const std::int64_t blocks = (entries_of(rule) + counting_threads - 1) / counting_threads;
  const auto grid = static_cast<unsigned>(std::min(blocks, most_counting_blocks));
  if (grid == 0) return {};
  const auto queue = static_cast<cudaStream_t>(stream);
  content_rule counted = rule;
  const number_uses uses(counted, grid, queue);
  count_faults_kernel<<<grid, counting_threads, 0, queue>>>(
      counted, reinterpret_cast<unsigned long long*>(faults));
  return answer_of("counting faults", cudaGetLastError());
}

}  // namespace tessera::impl::cuda
