// What kernels of the way back do alike, whether decays are of heads (chunk_weights.hpp,
// chunk_gradients.hpp) or of channels (chunk_channel_weights.hpp, chunk_channel_gradients.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Where a value head's rows stand that make M and P. By one thread.
template <class Memory>
__device__ __forceinline__ void find_rows_of_weights(Memory& shared,
                                                     const delta_rule_kernel_args& call,
                                                     const sequence& all, std::int64_t head) {
  const std::int64_t key_head = recurrence::shared_head(head, call.value_heads, call.key_heads);
  shared.rows_q = ordered_rows::of(call.q, all, key_head);
  shared.rows_k = ordered_rows::of(call.k, all, key_head);
  shared.rows_g = ordered_rows::of(call.decay, all, head);
  shared.rows_beta = ordered_rows::of(call.beta, all, head);
}

/// Queues copies of a chunk's q and k to shared memory.
template <class Element, class Shape, class Memory>
__device__ __forceinline__ void copy_queries_and_keys(Memory& shared,
                                                      const delta_rule_kernel_args& call,
                                                      std::int64_t first, int count, int keys) {
  recurrence::sm80::copy_rows<Element, typename Shape::key_rows, Shape::threads>(
      prim::cuda::shared_address(shared.q), call.q.data, shared.rows_q, first, count, keys);
  recurrence::sm80::copy_rows<Element, typename Shape::key_rows, Shape::threads>(
      prim::cuda::shared_address(shared.k), call.k.data, shared.rows_k, first, count, keys);
  prim::cuda::commit_copies();
}

/// Gradients of the chunks of a value head that a block has; zeros for tokens of no sequence.
template <class Gradients, class Shape, class Memory>
__device__ __forceinline__ void walk_chunks(Memory& shared, const chunk_back_args& args,
                                            const delta_rule_output& d_q,
                                            const delta_rule_output& d_k) {
  const recurrence::tile_item item(blockIdx.x, 1, args.call.value_heads);
  const sequence all = sequence_of<device_code>(args.call, item.sequence);
  if (all.is_rest) {
    if (blockIdx.y == 0) Gradients::clear(args, d_q, d_k, all, item.head);
    return;
  }
  if (!all.has_states || all.length == 0) return;
  Gradients of_head(args, d_q, d_k, shared, all, item.head);
  const std::int64_t chunks = (all.length + Shape::tokens - 1) / Shape::tokens;
  for (std::int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) of_head.run(chunk);
}

}  // namespace tessera::kernels::delta_rule::sm80
