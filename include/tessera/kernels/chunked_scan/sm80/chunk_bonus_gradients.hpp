// The gradient of the bonus: what the kernel of gradients of decays has left of each chunk, added
// up.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm80/kept_states.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// d_u: the sum of what chunks have left, in their order. A thread for each channel of a head.
template <class Element>
__global__ void __launch_bounds__(128)
    add_bonus_gradients(__grid_constant__ const decay_gradients args) {
  const chunked_scan_kernel_args& call = args.call;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = call.heads * call.keys;
  if (at >= step) return;
  double sum = 0.0;
  for (std::int64_t n = 0; n < call.sequences; ++n) {
    const sequence all = sequence_of<device_code>(call, n);
    if (!all.has_states || all.length <= 0) continue;
    const std::int64_t chunks = (all.length + chunk_states::tokens - 1) / chunk_states::tokens;
    const float* next = args.of_u + first_chunk_of(args.states, all) * step + at;
#pragma unroll 8
    for (std::int64_t i = 0; i < chunks; ++i, next += step) sum += static_cast<double>(*next);
  }
  prim::cuda::put_number(call.d_u.data, call.d_u.type,
                         at / call.keys * call.d_u.head + at % call.keys, static_cast<float>(sum));
}

}  // namespace tessera::kernels::chunked_scan::sm80
