// The kernel of forward.hpp: the roles of a block's warps.
#pragma once

#include <tessera/kernels/attention/sm90/forward.hpp>
#include <tessera/kernels/attention/sm90/producer.hpp>
#include <tessera/kernels/attention/sm90/row_store.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

template <class Kernel, class Hooks>
__global__ void __launch_bounds__(kernel_traits<Kernel, Hooks>::threads, 1)
    forward_kernel(const __grid_constant__ launch_args args,
                   const __grid_constant__ tensor_maps maps, const __grid_constant__ Hooks hooks) {
  using traits = kernel_traits<Kernel, Hooks>;
  static_assert(shared_plan_fits<traits>);
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<shared_plan<traits>*>(bytes);
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    shared.init_barriers();
    prim::cuda::publish_barriers();
    prim::cuda::show_writes_to_async_units();
  }
  __syncthreads();
  // A kernel beside this one starts when all blocks of this one know that the list is written.
  const bool waits_first = is_listed<traits>(args);
  if (!waits_first) prim::cuda::let_next_grid_start();
  if constexpr (may_plan_early<traits>) {
    // Maps, and the first work tile where all lengths are known, need nothing of the grid before.
    if (threadIdx.x == 0) {
      if (args.boxed_q) prim::cuda::fetch_map(maps.q);
      if (args.boxed_k) prim::cuda::fetch_map(maps.k);
      if (args.boxed_v) prim::cuda::fetch_map(maps.v);
    }
    const bool plans = threadIdx.x / prim::cuda::warp_size == 1;
    if (!plans || !args.knows_lengths) prim::cuda::wait_for_grid_before();
  } else {
    prim::cuda::wait_for_grid_before();
  }
  if (waits_first) prim::cuda::let_next_grid_start();
  if (warpgroup == 0) {
    prim::cuda::give_registers<traits::producer_registers>();
    const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
    if (warp == 0) producer<traits>(args, maps, shared).run();
    if (warp == 1) plan_tiles<Kernel, traits>(args, hooks, shared);
    if constexpr (traits::whole_tiles) {
      if (warp == 2) hooks.mask.sort_tiles(args, shared);
    }
    if constexpr (traits::stores_boxes) {
      if (warp == 3) row_storer<traits>(args, maps, shared).run();
    }
  } else {
    prim::cuda::take_registers<traits::consumer_registers>();
    consumer<traits>(args, hooks, shared, warpgroup - 1).run();
  }
}

}  // namespace tessera::kernels::attention::sm90
