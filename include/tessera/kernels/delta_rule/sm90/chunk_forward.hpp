// The delta rule in chunks of 64 tokens on Hopper. With S the state in front of a chunk, G_t the
// sum of log decays of a channel up to token t, M = (I + A)^-1 and
//
//   A_tj = beta_t sum over c of k_tc k_jc exp(G_tc - G_jc)  for j < t, else 0
//
//   d = M (beta (v - (k exp(G)) S))
//   out_t = scale ((q_t exp(G_t)) S + sum over j <= t of P_tj d_j)
//   S <- exp(G_end) S + sum over t of (k_t exp(G_end - G_t)) d_t^T
//
// A block has 128 columns of the state of a sequence and value head. One warpgroup, where
// columns decay two, makes operands of chunks, up to two in front of those that have the state
// (chunk_makers.hpp, chunk_walkers.hpp). Operands that are no inputs are rounded to 16 bits: rows
// times decays, P, M beta, M beta k, d and the state that is read.
//
// Here channels have decays of their own; where a head has one: head_forward.hpp. Linear attention
// has the same kernels with d = v (`Shape::corrects`).
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/begin_walk.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_makers.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_walkers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// What a block does, of a scan of gradients as `back` says; walk(shared, all, head, column) is
/// what those do that have the state.
template <class Element, class Shape, class Walk>
__device__ __forceinline__ void take_chunks_through(const delta_rule_kernel_args& args,
                                                    const further_decays& further,
                                                    const back_scan& back, int tiles,
                                                    unsigned char* memory, const Walk& walk) {
  auto& shared = *reinterpret_cast<walk_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  if (Shape::returns && column >= args.value_dim) return;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  if (is_without_states<Shape>(args, all, head, column)) return;

  begin_walk(shared, args, further, all, head, Shape::returns && back.returns);
  if (prim::cuda::warpgroup_index() < Shape::maker_threads / 128) {
    prim::cuda::give_registers<Shape::maker_registers>();
    operand_maker<Element, Shape>(args, further, back, shared, all, head, column).make_all();
  } else {
    prim::cuda::take_registers<Shape::walker_registers>();
    walk(shared, all, head, column);
  }
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    chunk_through(__grid_constant__ const delta_rule_kernel_args args,
                  __grid_constant__ const further_decays further, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr back_scan forward;
  take_chunks_through<Element, Shape>(
      args, further, forward, tiles, memory,
      [&](walk_memory<Shape>& shared, const sequence& all, std::int64_t head, std::int64_t column) {
        state_walker<Element, Shape>(args, shared, column).walk(all, head, forward);
      });
}

}  // namespace tessera::kernels::delta_rule::sm90
