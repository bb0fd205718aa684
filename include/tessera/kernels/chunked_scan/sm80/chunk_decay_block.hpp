// A chunk of a head and 64 of its channels, for the gradients of decays: what both ways to them
// read (chunk_decay_products.hpp, chunk_decay_pair_sums.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/kept_states.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// An element on its way from memory; 0 if not `wanted`. Predicated in PTX: the compiler makes a
/// branch of `if`, in which it waits for each.
template <class Number>
__device__ __forceinline__ Number ask_for(const Number* from, bool wanted) {
  if constexpr (sizeof(Number) == 4) {
    float x;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.b32 %0, [%1]; }"
                 : "=&f"(x)
                 : "l"(from), "r"(wanted ? 1 : 0));
    return x;
  } else {
    std::uint16_t bits;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b16 %0, 0; @p ld.global.b16 %0, [%1]; }"
                 : "=&h"(bits)
                 : "l"(from), "r"(wanted ? 1 : 0));
    Number x;
    x.bits = bits;
    return x;
  }
}

template <class Element, class Shape>
struct decay_block {
  using memory = decay_memory<Shape>;

  __device__ __forceinline__ decay_block(const decay_gradients& of_call, memory& of_block,
                                         const sequence& of_head, std::int64_t number)
      : args(of_call), call(of_call.call), shared(of_block), all(of_head), head(number) {
    if (call.g_gamma != nullptr) {
      gamma = call.g_gamma[all.number * call.gamma_sequence + head * call.gamma_head];
    }
    if (threadIdx.x == 0) {
      const std::int64_t kv_head = recurrence::shared_head(head, call.heads, call.kv_heads);
      shared.rows_q = ordered_rows::of(call.q, all, head);
      shared.rows_k = ordered_rows::of(call.k, all, kv_head);
      shared.rows_v = ordered_rows::of(call.v, all, kv_head);
      shared.rows_d_out = ordered_rows::of(call.d_out, all, head);
      shared.rows_g = ordered_rows::of(call.g, all, head);
      shared.rows_gk = ordered_rows::of(call.gk, all, head);
      shared.rows_d_g = ordered_rows::of(call.d_g, all, head);
      shared.rows_d_gk = ordered_rows::of(call.d_gk, all, head);
    }
    __syncthreads();
  }
  __device__ __forceinline__ void go_to(std::int64_t number, int tile) {
    const auto thread = prim::cuda::thread_index();
    warp = static_cast<int>(thread / 32);
    lane = static_cast<int>(thread % 32);
    first = number * Shape::tokens;
    first_channel = tile * Shape::columns;
    count = static_cast<int>(min(all.length - first, std::int64_t{Shape::tokens}));
    chunk = first_chunk_of(args.states, all) + number;
  }

  /// Starts to copy rows of q and k, then, in a group of their own, those of d_out and v.
  __device__ __forceinline__ void copy_rows() const {
    copy<typename Shape::value_rows>(shared.q, call.q, shared.rows_q, first_channel, call.keys);
    copy<typename Shape::value_rows>(shared.k, call.k, shared.rows_k, first_channel, call.keys);
    prim::cuda::commit_copies();
    copy<typename Shape::key_rows>(shared.rows.d_out, call.d_out, shared.rows_d_out, 0,
                                   call.values);
    copy<typename Shape::key_rows>(shared.rows.v, call.v, shared.rows_v, 0, call.values);
    prim::cuda::commit_copies();
  }
  /// The kept tile of the warp. One behind the last is another: its threads have no channel.
  __device__ __forceinline__ kept_tile<Shape::keys> tile_of(uint4* states) const {
    const int last = (static_cast<int>(call.keys) - 1) / 16;
    return kept_tile<Shape::keys>::of(states, chunk, call, head,
                                      min(first_channel / 16 + warp, last));
  }
  /// v_j . d_out_s of the 16 tokens s of the warp and all j up to these.
  __device__ __forceinline__ void multiply_rows(prim::cuda::accumulator (&scores)[8]) const {
    recurrence::sm80::multiply_rows<Element, Shape, 1>(
        scores, prim::cuda::shared_address(shared.rows.d_out),
        prim::cuda::shared_address(shared.rows.v), warp, 0);
  }
  /// Calls body(s, j, of j, of j + 1) for what the lane has of these.
  template <class Body>
  __device__ __forceinline__ void for_each_score(const prim::cuda::accumulator (&scores)[8],
                                                 const Body& body) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i / 4 > warp) break;
      const float* const x = scores[i / 2].at + i % 2 * 2;
      body(warp * 16 + i % 2 * 8 + lane / 4, i / 2 * 8 + lane % 4 * 2, x[0], x[1]);
    }
  }
  /// What D is multiplied by: the decay of the token behind the chunk, with which it is kept in the
  /// units of its scan; with a bonus it has decayed.
  template <bool Before>
  __device__ __forceinline__ float scale_of_d(int channel) const {
    const std::int64_t next = first + count;
    if (Before || next >= all.length || channel >= call.keys) return args.scale_of_d;
    float x = gamma;
    if (call.g.data != nullptr) {
      x += prim::cuda::number_at(call.g.data, call.g.type, shared.rows_g.at(next));
    }
    if (call.gk.data != nullptr) {
      const float of_channel =
          prim::cuda::number_at(call.gk.data, call.gk.type, shared.rows_gk.at(next) + channel);
      x += call.raw_decay ? log_decay_of_raw(of_channel) : of_channel;
    }
    return args.scale_of_d * prim::cuda::exp2_fast(log2_decay(x));
  }
  /// What the gradient of the bonus has of the chunk.
  __device__ __forceinline__ void put_bonus(int channel, float sum) const {
    args.of_u[(chunk * call.heads + head) * call.keys + channel] = sum;
  }
  /// Whether the decay of a token that is read in front of its own is of no initial state, or leads
  /// to a final state that nobody reads: of its gradient, 0, the sums leave what they round.
  __device__ __forceinline__ bool acts_on_nothing(int t) const {
    return (call.initial_state.data == nullptr && first + t == 0) ||
           (call.d_final_state.data == nullptr && first + t == all.length - 1);
  }
  /// The derivative of a log decay by what it is the -exp of, itself; one that leaves nothing has
  /// none.
  __device__ __forceinline__ float slope(int t, int channel) const {
    const float x = log_decay_of_raw(
        prim::cuda::number_at(call.gk.data, call.gk.type, shared.rows_gk.at(first + t) + channel));
    return log2_decay(x) > -64.0f ? x : 0.0f;
  }

  const decay_gradients& args;
  const chunked_scan_kernel_args& call;
  memory& shared;
  const sequence& all;
  std::int64_t head;
  int warp = 0, lane = 0;
  float gamma = 0.0f;
  std::int64_t first = 0, chunk = 0;  ///< its first token; of all sequences
  int count = 0;                      ///< its tokens
  int first_channel = 0;

 private:
  /// Rows of `columns` from column `from_column` on.
  template <class Tile>
  __device__ __forceinline__ void copy(unsigned char* to, const chunked_scan_rows& from,
                                       ordered_rows rows, int from_column,
                                       std::int64_t columns) const {
    recurrence::sm80::copy_rows<Element, Tile, Shape::threads>(
        prim::cuda::shared_address(to), static_cast<const Element*>(from.data) + from_column, rows,
        first, count, static_cast<int>(columns) - from_column);
  }
};

}  // namespace tessera::kernels::chunked_scan::sm80
