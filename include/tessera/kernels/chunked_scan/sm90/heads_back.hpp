// The three scans of gradients where a head's channels decay alike or not at all
// (../sm80/chunk_scans.hpp), by the kernel that goes forward (delta_rule/sm90/head_forward.hpp). A
// state that returns decays by the token it has taken: the factors of a token are those of the one
// before it, and the last state decays once more.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm90/walk_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/head_forward.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

using delta_rule::sm90::back_scan;

/// blockIdx.y is the scan.
struct back_launch {
  struct scan {
    walk_args walk{};
    back_scan back{};
  };
  scan scans[3]{};
};

inline back_launch::scan back_scan_of(const chunked_scan_kernel_args& call,
                                      const sm80::chunk_scan& scan) {
  return {.walk = walk_of(call, scan),
          .back = {.returns = scan.returns,
                   .token_scale = std::exp2(scan.log2_token_scale),
                   .initial_scale = scan.initial_scale,
                   .final_scale = scan.final_scale,
                   .initial_column = scan.initial.column}};
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    heads_back_through(__grid_constant__ const back_launch launch, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const back_launch::scan& scan = launch.scans[blockIdx.y];
  delta_rule::sm90::take_heads_through<Element, Shape>(scan.walk.args, scan.walk.further, scan.back,
                                                       tiles, memory);
}

template <class Element, int Keys>
struct back_walks {
  using shape = delta_rule::sm90::head_shape<Keys, false, true>;
  static constexpr auto through_heads = &heads_back_through<Element, shape>;
  static constexpr int bytes = static_cast<int>(sizeof(delta_rule::sm90::head_memory<shape>));

  static cudaError_t launch(const chunked_scan_kernel_args& call, const sm80::chunk_scan& of_d_q,
                            const sm80::chunk_scan& of_d_k, const sm80::chunk_scan& of_d_v,
                            cudaStream_t stream) {
    const std::int64_t columns = std::max(call.keys, call.values);
    const std::int64_t tiles = (columns + shape::columns - 1) / shape::columns;
    const std::int64_t blocks = delta_rule::sequences_with_rest(call) * call.heads * tiles;
    if (blocks <= 0) return cudaSuccess;
    const back_launch launch{{back_scan_of(call, of_d_q), back_scan_of(call, of_d_k),
                              back_scan_of(call, of_d_v)}};
    dim3 grid = cuda::grid_of(blocks);
    grid.y = 3;
    return prim::cuda::launch_kernel(through_heads, grid, shape::threads, bytes, stream, false,
                                     launch, static_cast<int>(tiles));
  }
};

}  // namespace tessera::kernels::chunked_scan::sm90
