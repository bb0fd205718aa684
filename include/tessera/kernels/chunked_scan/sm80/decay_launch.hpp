// Launches of gradients of decays of channels or heads, behind the scans that keep states.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_decay_gradients.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scratch.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: with a bonus, with which queries read the state in front of their token.
template <class Element, int Keys>
struct decay_kernels {
  using shape = decay_shape<Keys>;
  static constexpr int shared_bytes = static_cast<int>(sizeof(decay_memory<shape>));
  /// Of 228 KB of a multiprocessor, of which each block takes one more.
  static_assert(shape::blocks * (shared_bytes + 1024) <= 228 * 1024);
  template <bool Before>
  static constexpr auto kernel = &make_decay_gradients<Element, shape, Before>;

  template <bool Before>
  static prim::cuda::kernel_entry entry_of() {
    return cuda::entry_of(kernel<Before>, shared_bytes);
  }
  template <bool Before>
  static cudaError_t launch(decay_gradients args, cudaStream_t stream) {
    const chunked_scan_kernel_args& call = args.call;
    // Gradients of a head's decays are sums over all channels.
    const std::int64_t tiles = (call.keys + shape::columns - 1) / shape::columns;
    args.tiles = call.d_g.data != nullptr ? 1 : static_cast<int>(tiles);
    const std::int64_t states = sequences_with_rest(call) * call.heads;
    if (states <= 0) return cudaSuccess;
    dim3 grid = cuda::grid_of(states * args.tiles);
    // Blocks take chunks in turn: lengths of packed sequences are not known here, and blocks for
    // the longest possible one would be mostly empty.
    const std::int64_t average = call.tokens / std::max<std::int64_t>(call.sequences, 1);
    const std::int64_t length =
        call.cu_seqlens != nullptr ? std::min(call.tokens, 4 * average) : call.tokens;
    const std::int64_t chunks = (length + shape::tokens - 1) / shape::tokens;
    grid.y = static_cast<unsigned>(std::clamp<std::int64_t>(chunks, 1, UINT16_MAX));
    return prim::cuda::launch_kernel(kernel<Before>, grid, shape::threads, shared_bytes, stream,
                                     false, args);
  }
};

}  // namespace tessera::kernels::chunked_scan::sm80
