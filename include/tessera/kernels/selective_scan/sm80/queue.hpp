// Kernels of a launch one after the other, and the rows that no sequence has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int block_threads = 256;

/// Rows of tokens of no sequence become 0: `columns` of each of the heads.
template <class Rows>
__global__ void __launch_bounds__(block_threads)
    clear_unused(scan_sequences sequences, Rows rows, std::int64_t heads, std::int64_t columns) {
  const std::int64_t width = heads * columns, count = sequences.tokens * width;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
       at < count; at += step) {
    const std::int64_t token = at / width, column = at % width;
    if (is_used(sequences, token)) continue;
    std::int64_t place = column % columns;
    if constexpr (std::is_same_v<Rows, scan_tensor>) {
      place += token * rows.token + column / columns * rows.head;
    } else {
      place += token * rows.row;
    }
    prim::cuda::put_number(rows.data, rows.type, place, 0.0f);
  }
}

/// Launches kernels of one stream one after the other, until one fails.
class kernel_queue {
 public:
  explicit kernel_queue(cudaStream_t stream) : stream_(stream) {}

  /// Nothing for no blocks.
  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes,
           const Arguments&... arguments) {
    if (code_ != cudaSuccess || blocks <= 0) return;
    code_ = prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream_,
                                      false, arguments...);
  }
  /// A thread for each element.
  template <class... Parameters, class... Arguments>
  void run_over(void (*kernel)(Parameters...), std::int64_t elements,
                const Arguments&... arguments) {
    run(kernel, (elements + block_threads - 1) / block_threads, block_threads, 0, arguments...);
  }
  cudaError_t code() const { return code_; }

 private:
  cudaStream_t stream_;
  cudaError_t code_ = cudaSuccess;
};

/// Rows of tokens of no sequence become 0.
template <class Rows>
void queue_clearing(kernel_queue& queue, const scan_sequences& sequences, const Rows& rows,
                    std::int64_t heads, std::int64_t columns) {
  if (sequences.cu_seqlens == nullptr || rows.data == nullptr) return;
  const std::int64_t elements = sequences.tokens * heads * columns;
  queue.run(&clear_unused<Rows>, std::min<std::int64_t>((elements + 255) / 256, 4096),
            block_threads, 0, sequences, rows, heads, columns);
}

}  // namespace tessera::kernels::selective_scan::sm80
