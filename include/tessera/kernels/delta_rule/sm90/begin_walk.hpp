// What blocks that take sequences through their states do before the first token.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// Whether a block's sequence has no states; tokens that belong to no sequence have answers of 0.
template <class Shape>
__device__ __forceinline__ bool is_without_states(const delta_rule_kernel_args& args,
                                                  const sequence& all, std::int64_t head,
                                                  std::int64_t column) {
  if (all.is_rest) {
    const auto width = min(args.value_dim - column, std::int64_t{Shape::columns});
    recurrence::sm80::clear_rows(args.out, all, head, column, static_cast<int>(width));
    return true;
  }
  return !all.has_states;
}

template <int Threads>
__device__ __forceinline__ void clear_shared(unsigned char* rows, int bytes) {
  constexpr std::uint32_t zeros[4] = {};
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += Threads) {
    prim::cuda::store_shared_16(
        prim::cuda::shared_address(rows) + static_cast<std::uint32_t>(i) * 16, zeros);
  }
}

/// Barriers, rows of operands, zeros above diagonals. `returns`: queries are of heads of keys and
/// values, keys and values of heads of queries.
template <class Memory>
__device__ __forceinline__ void begin_walk(Memory& shared, const delta_rule_kernel_args& args,
                                           const further_decays& further, const sequence& all,
                                           std::int64_t head, bool returns = false) {
  using shape = typename Memory::shape;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < shape::columns; i += shape::threads) {
    shared.first_not_finite[i] = shape::tokens;
  }
  for (auto& item : shared.items) {
    clear_shared<shape::threads>(item.weights, shape::weight_rows::bytes);
    if constexpr (shape::corrects) {
      clear_shared<shape::threads>(item.inverse, shape::weight_rows::bytes);
    }
    if constexpr (shape::low_rank) {
      clear_shared<shape::threads>(item.own_weights, shape::weight_rows::bytes);
    }
  }
  if (thread == 0) {
    const std::int64_t key_head = recurrence::shared_head(head, args.value_heads, args.key_heads);
    const std::int64_t writing_head = returns ? head : key_head;
    shared.rows_q = ordered_rows::of(args.q, all, shape::corrects || returns ? key_head : head);
    shared.rows_k = ordered_rows::of(args.k, all, writing_head);
    shared.rows_v = ordered_rows::of(args.v, all, shape::corrects ? head : writing_head);
    shared.rows_g = ordered_rows::of(args.decay, all, head);
    shared.rows_beta = ordered_rows::of(shape::corrects ? args.beta : further.of_heads, all, head);
    shared.rows_out = ordered_rows::of(args.out, all, head);
    if constexpr (shape::low_rank) {
      shared.rows_read = ordered_rows::of(args.read, all, key_head);
      shared.rows_write = ordered_rows::of(args.write, all, key_head);
    }
    shared.init_barriers();
    prim::cuda::publish_barriers();
  }
  prim::cuda::show_writes_to_async_units();
  __syncthreads();
}

}  // namespace tessera::kernels::delta_rule::sm90
