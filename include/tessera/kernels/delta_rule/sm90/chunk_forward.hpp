// The delta rule in chunks of 64 tokens on Hopper. With S the state in front of a chunk, G_t the
// sum of log decays of a channel up to token t, M = (I + A)^-1 and
//
//   A_tj = beta_t sum over c of k_tc k_jc exp(G_tc - G_jc)  for j < t, else 0
//
//   d = M (beta (v - (k exp(G)) S))
//   out_t = scale ((q_t exp(G_t)) S + sum over j <= t of P_tj d_j)
//   S <- exp(G_end) S + sum over t of (k_t exp(G_end - G_t)) d_t^T
//
// A block has 128 columns of the state of a sequence and value head. One warpgroup makes operands
// of chunks, up to two in front of those that have the state (chunk_makers.hpp,
// chunk_walkers.hpp). Operands that are no inputs are rounded to 16 bits: rows times decays, P,
// M beta, M beta k, d and the state that is read.
//
// Linear attention has the same kernel with d = v (`Shape::corrects`).
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_makers.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_walkers.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// What is there before the first token: barriers, rows of operands, zeros above diagonals.
template <class Shape>
__device__ __forceinline__ void begin_walk(walk_memory<Shape>& shared,
                                           const delta_rule_kernel_args& args,
                                           const further_decays& further, const sequence& all,
                                           std::int64_t head) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < Shape::columns; i += Shape::threads) {
    shared.first_not_finite[i] = Shape::tokens;
  }
  for (auto& item : shared.items) {
    if (!Shape::corrects) break;
    constexpr std::uint32_t zeros[4] = {};
    for (int i = thread; i < Shape::weight_rows::bytes / 16; i += Shape::threads) {
      prim::cuda::store_shared_16(
          prim::cuda::shared_address(item.inverse) + static_cast<std::uint32_t>(i) * 16, zeros);
    }
  }
  if (thread == 0) {
    const std::int64_t key_head = recurrence::shared_head(head, args.value_heads, args.key_heads);
    shared.rows_q = ordered_rows::of(args.q, all, Shape::corrects ? key_head : head);
    shared.rows_k = ordered_rows::of(args.k, all, key_head);
    shared.rows_v = ordered_rows::of(args.v, all, Shape::corrects ? head : key_head);
    shared.rows_g = ordered_rows::of(args.decay, all, head);
    shared.rows_beta = ordered_rows::of(Shape::corrects ? args.beta : further.of_heads, all, head);
    shared.rows_out = ordered_rows::of(args.out, all, head);
    shared.ring.init(Shape::maker_threads, Shape::walker_threads);
    prim::cuda::publish_barriers();
  }
  prim::cuda::show_writes_to_async_units();
  __syncthreads();
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    chunk_through(__grid_constant__ const delta_rule_kernel_args args,
                  __grid_constant__ const further_decays further, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<walk_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  if (all.is_rest) {
    const auto width = min(args.value_dim - column, std::int64_t{Shape::columns});
    return recurrence::sm80::clear_rows(args.out, all, head, column, static_cast<int>(width));
  }
  if (!all.has_states) return;

  begin_walk(shared, args, further, all, head);
  if (prim::cuda::warpgroup_index() < Shape::maker_threads / 128) {
    prim::cuda::give_registers<Shape::maker_registers>();
    operand_maker<Element, Shape>(args, further, shared, all, head, column).make_all();
  } else {
    prim::cuda::take_registers<Shape::walker_registers>();
    state_walker<Element, Shape>(args, shared, column).walk(all, head);
  }
}

}  // namespace tessera::kernels::delta_rule::sm90
