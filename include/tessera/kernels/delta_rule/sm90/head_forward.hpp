// The delta rule in chunks of 64 tokens on Hopper where all channels of a head decay alike: the
// formulas of chunk_forward.hpp with factors for tokens instead of scaled rows. With a_t and c_t
// what scales keys and queries to length 1, and decays G_t of a head,
//
//   A_tj = beta_t a_t a_j (k_t k_j) exp(G_t - G_j)  for j < t, else 0
//   P_tj = c_t a_j (q_t k_j) exp(G_t - G_j)  for j <= t, else 0
//
// No factor is a ratio of decays but of those between two tokens of a chunk, so nothing overflows
// and a chunk is never cut. Rows of a chunk go through four hands: head_loaders.hpp,
// head_tokens.hpp, head_makers.hpp, head_walkers.hpp.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/begin_walk.hpp>
#include <tessera/kernels/delta_rule/sm90/head_loaders.hpp>
#include <tessera/kernels/delta_rule/sm90/head_makers.hpp>
#include <tessera/kernels/delta_rule/sm90/head_tokens.hpp>
#include <tessera/kernels/delta_rule/sm90/head_walkers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// What a block does, of a scan of gradients as `back` says.
template <class Element, class Shape>
__device__ __forceinline__ void take_heads_through(const delta_rule_kernel_args& args,
                                                   const further_decays& further,
                                                   const back_scan& back, int tiles,
                                                   unsigned char* memory) {
  auto& shared = *reinterpret_cast<head_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  if (Shape::returns && column >= args.value_dim) return;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  if (is_without_states<Shape>(args, all, head, column)) return;

  if (threadIdx.x == 0) {
    shared.gate = head_gate<device_code>(args.gate, head);
    shared.constant = Shape::corrects ? 0.0f : further.constant_of(all.number, head);
    shared.token_scale = back.token_scale;
    shared.earlier = back.returns ? 1 : 0;
    shared.length = all.length;
    shared.column = column;
  }
  begin_walk(shared, args, further, all, head, Shape::returns && back.returns);
  const int group = prim::cuda::warpgroup_index();
  if (group == 0) {
    prim::cuda::give_registers<Shape::loader_registers>();
    if (prim::cuda::thread_index() < Shape::loader_threads) {
      row_loader<Element, Shape>(args, shared).load_all();
    } else {
      token_measurer<Element, Shape>(args, shared).measure_all();
    }
  } else if (group == 1) {
    prim::cuda::give_registers<Shape::maker_registers>();
    weight_maker<Element, Shape>::make_all(shared);
  } else {
    prim::cuda::take_registers<Shape::walker_registers>();
    head_walker<Element, Shape>(args, shared, column).walk(all, head, back);
  }
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    heads_through(__grid_constant__ const delta_rule_kernel_args args,
                  __grid_constant__ const further_decays further, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  take_heads_through<Element, Shape>(args, further, back_scan(), tiles, memory);
}

}  // namespace tessera::kernels::delta_rule::sm90
