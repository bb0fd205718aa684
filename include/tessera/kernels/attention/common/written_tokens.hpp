// New keys and values on a GPU: written to their pages on the stream of a launch, before it attends
// to them.
#pragma once

#include <cuda_runtime.h>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/new_tokens.hpp>
#include <tessera/kernels/kv_cache/sm80/append.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention {

/// Queues the writes of a launch that has new tokens, before it attends to them.
template <class Kernel>
status write_new_tokens(const attention_kernel_args& args, cudaStream_t stream) {
  if (args.written.k == nullptr) return {};
  using element = element_t<Kernel::config.type>;
  const kv_append_args writes = append_args_of(args);
  cudaError_t code = cudaSuccess;
  if constexpr (takes_codes(Kernel::config)) {
    code = kv_cache::sm80::append_to_any_pool<element>(writes, stream);
  } else {
    code = kv_cache::sm80::append_unchanged<element>(writes, stream);
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

}  // namespace tessera::kernels::attention
