// Kernels of a launch one after the other.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Launches kernels of one stream, until one fails.
class kernel_queue {
 public:
  explicit kernel_queue(const launch_context& context)
      : stream_(static_cast<cudaStream_t>(context.stream)) {}

  /// Nothing for no blocks.
  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes,
           const Arguments&... arguments) {
    if (code_ != cudaSuccess || blocks <= 0) return;
    code_ = prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream_,
                                      false, arguments...);
  }
  /// A block for each item, whose number the kernel is told.
  template <class... Parameters, class... Arguments>
  void run_items(void (*kernel)(Parameters...), std::int64_t items, int threads, int shared_bytes,
                 const Arguments&... arguments) {
    run(kernel, items, threads, shared_bytes, arguments..., items);
  }
  status ended() const { return cuda::launched(code_); }

 private:
  cudaStream_t stream_;
  cudaError_t code_ = cudaSuccess;
};

}  // namespace tessera::kernels::sparse_attention::sm80
