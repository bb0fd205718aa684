// Pages of a pool onto other pages of it. No page number is trusted: pairs with a page that there
// is not are left out.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::kv_cache::sm80 {

inline constexpr int copy_threads = 256;
/// Words that a thread has in flight.
inline constexpr int copy_words = 4;

/// What the kernel receives: the pages of one or two pools in words of the kernel.
struct copy_launch {
  kv_copy_args call{};
  std::int64_t words[2] = {0, 0};      ///< of a page
  std::int64_t run_words[2] = {0, 0};  ///< of a run
};

/// Where word `at` of a page lies, in bytes.
template <class Word>
__device__ __forceinline__ std::int64_t place_in_page(const page_runs& runs, std::int64_t run_words,
                                                      std::int64_t at) {
  if (run_words * static_cast<std::int64_t>(sizeof(Word)) == runs.bytes()) {
    return at * static_cast<std::int64_t>(sizeof(Word));
  }
  std::int64_t run = at / run_words;
  const std::int64_t inside = at - run * run_words;
  const std::int64_t k = run % runs.extents[2];
  run /= runs.extents[2];
  return run / runs.extents[1] * runs.strides[0] + run % runs.extents[1] * runs.strides[1] +
         k * runs.strides[2] + inside * static_cast<std::int64_t>(sizeof(Word));
}

/// blockIdx: x a part of a page, y the pair of pages, z the pool.
template <class Word>
__global__ void __launch_bounds__(copy_threads)
    copy_pages(const __grid_constant__ copy_launch launch) {
  const kv_copy_args& args = launch.call;
  const bool values = blockIdx.z != 0;
  const page_runs& runs = values ? args.v_runs : args.k_runs;
  const std::int64_t words = launch.words[values ? 1 : 0];
  const std::int64_t run_words = launch.run_words[values ? 1 : 0];
  auto* const pool = static_cast<unsigned char*>(values ? args.v : args.k);
  for (std::int64_t pair = blockIdx.y; pair < args.copies; pair += gridDim.y) {
    const std::int64_t source = args.source_pages[pair], target = args.target_pages[pair];
    if (source < 0 || source >= args.page_count || target < 0 || target >= args.page_count)
      continue;
    const unsigned char* const from = pool + source * runs.page;
    unsigned char* const to = pool + target * runs.page;
    const std::int64_t begin = std::int64_t{blockIdx.x} * copy_threads * copy_words + threadIdx.x;
    Word held[copy_words];
#pragma unroll
    for (int i = 0; i < copy_words; ++i) {
      const std::int64_t at = begin + std::int64_t{i} * copy_threads;
      if (at >= words) continue;
      held[i] = *reinterpret_cast<const Word*>(from + place_in_page<Word>(runs, run_words, at));
    }
#pragma unroll
    for (int i = 0; i < copy_words; ++i) {
      const std::int64_t at = begin + std::int64_t{i} * copy_threads;
      if (at >= words) continue;
      *reinterpret_cast<Word*>(to + place_in_page<Word>(runs, run_words, at)) = held[i];
    }
  }
}

/// Every run of the pool starts and ends at a multiple of `unit` bytes.
inline bool are_multiples(const void* pool, const page_runs& runs, std::int64_t unit) {
  return pool == nullptr ||
         ((reinterpret_cast<std::uintptr_t>(pool) % static_cast<std::uintptr_t>(unit) == 0) &&
          (runs.page | runs.strides[0] | runs.strides[1] | runs.strides[2] | runs.run) % unit == 0);
}

template <class Word>
cudaError_t copy_in(copy_launch& launch, cudaStream_t stream) {
  constexpr std::int64_t unit = sizeof(Word);
  const kv_copy_args& args = launch.call;
  const page_runs* const runs[2] = {&args.k_runs, &args.v_runs};
  std::int64_t most = 0;
  const int pools = args.v != nullptr ? 2 : 1;
  for (int pool = 0; pool < pools; ++pool) {
    launch.words[pool] = runs[pool]->bytes() / unit;
    launch.run_words[pool] = std::max<std::int64_t>(runs[pool]->run / unit, 1);
    most = std::max(most, launch.words[pool]);
  }
  constexpr std::int64_t block = copy_threads * copy_words;
  const std::int64_t parts = (most + block - 1) / block;
  if (parts > INT32_MAX) return cudaErrorInvalidValue;  // a page of terabytes
  const dim3 grid(static_cast<unsigned>(parts),
                  static_cast<unsigned>(std::min<std::int64_t>(args.copies, 65535)),
                  static_cast<unsigned>(pools));
  return prim::cuda::launch_kernel(&copy_pages<Word>, grid, copy_threads, 0, stream, false, launch);
}

/// Queues the copies on a stream of the current device; can be captured.
inline cudaError_t copy(const kv_copy_args& args, cudaStream_t stream) {
  copy_launch launch;
  launch.call = args;
  const bool empty =
      args.copies == 0 || args.page_count == 0 || args.k_runs.bytes() + args.v_runs.bytes() == 0;
  if (empty) return cudaSuccess;
  const auto fits = [&](std::int64_t unit) {
    return are_multiples(args.k, args.k_runs, unit) && are_multiples(args.v, args.v_runs, unit);
  };
  if (fits(16)) return copy_in<uint4>(launch, stream);
  if (fits(4)) return copy_in<std::uint32_t>(launch, stream);
  return copy_in<std::uint8_t>(launch, stream);
}

}  // namespace tessera::kernels::kv_cache::sm80
