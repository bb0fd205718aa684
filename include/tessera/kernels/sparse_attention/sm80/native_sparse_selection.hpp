// Which blocks a token looks at: its own, and those whose means get the most attention of its heads
// together.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Shared memory: queries, means.
inline int selection_bytes(std::int64_t head_dim) {
  return 2 * float_tile::words(head_dim) * static_cast<int>(sizeof(float));
}

/// Weights in an order of words: NaN has none.
__device__ __forceinline__ std::uint32_t rank_of(float weight) {
  return weight >= 0.0f ? __float_as_uint(weight) + 1 : 0;
}

/// The largest number that so many ranks reach, bit by bit, by a warp: `reaching(candidate)` says
/// how many of a lane's do.
template <class Reaching>
__device__ __forceinline__ std::uint32_t largest_reached(std::int64_t wanted,
                                                         const Reaching& reaching) {
  std::uint32_t found = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (__reduce_add_sync(prim::cuda::all_lanes, reaching(found | bit)) >= wanted) found |= bit;
  }
  return found;
}

/// The smallest rank of the `wanted` highest of `count` weights, by a warp. Few are held in
/// registers.
__device__ __forceinline__ std::uint32_t lowest_of_highest(const float* weights, std::int64_t count,
                                                           std::int64_t wanted, unsigned lane) {
  constexpr int held = 16;
  if (count > held * prim::cuda::warp_size) {
    return largest_reached(wanted, [&](std::uint32_t candidate) {
      int mine = 0;
      for (std::int64_t n = lane; n < count; n += prim::cuda::warp_size) {
        mine += rank_of(weights[n]) >= candidate ? 1 : 0;
      }
      return mine;
    });
  }
  std::uint32_t ranks[held];
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int n = static_cast<int>(lane) + i * prim::cuda::warp_size;
    ranks[i] = n < count ? rank_of(weights[n]) : 0;
  }
  return largest_reached(wanted, [&](std::uint32_t candidate) {
    int mine = 0;
#pragma unroll
    for (const std::uint32_t rank : ranks) mine += rank >= candidate ? 1 : 0;
    return mine;
  });
}

/// Calls put(slot, number) for the `wanted` blocks before `count` of the highest weights, in their
/// order; of equal ones the first. A warp.
template <class Put>
__device__ __forceinline__ void select_blocks(const float* weights, std::int64_t count,
                                              std::int64_t wanted, const Put& put) {
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const std::uint32_t lowest = lowest_of_highest(weights, count, wanted, lane);
  int above = 0;
  for (std::int64_t n = lane; n < count; n += prim::cuda::warp_size) {
    above += rank_of(weights[n]) > lowest ? 1 : 0;
  }
  std::int64_t equal_left = wanted - __reduce_add_sync(prim::cuda::all_lanes, above);
  std::int64_t slot = 0;
  const std::uint32_t lanes_before = (1u << lane) - 1;
  for (std::int64_t first = 0; first < count && slot < wanted; first += prim::cuda::warp_size) {
    const std::int64_t n = first + lane;
    const std::uint32_t rank = n < count ? rank_of(weights[n]) : 0;
    const bool is_equal = n < count && rank == lowest;
    const std::uint32_t equal = __ballot_sync(prim::cuda::all_lanes, is_equal);
    const bool chosen =
        n < count && (rank > lowest || (is_equal && __popc(equal & lanes_before) < equal_left));
    const std::uint32_t all = __ballot_sync(prim::cuda::all_lanes, chosen);
    if (chosen) put(slot + __popc(all & lanes_before), n);
    slot += __popc(all);
    equal_left -= __popc(equal) < equal_left ? __popc(equal) : equal_left;
  }
}

/// More than any weight for blocks before `own` that are selected anyway. A warp.
__device__ __forceinline__ void weigh_blocks_selected_anyway(const native_sparse_kernel_args& call,
                                                             std::int64_t own, float* weights) {
  const std::int64_t first_end = call.first_blocks < own ? call.first_blocks : own;
  const std::int64_t before = call.last_blocks - 1;
  const std::int64_t last_begin = before < own ? own - before : 0;
  const float infinity = __int_as_float(0x7f800000);
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  for (std::int64_t n = lane; n < first_end; n += prim::cuda::warp_size) weights[n] = infinity;
  for (std::int64_t n = last_begin + lane; n < own; n += prim::cuda::warp_size) {
    weights[n] = infinity;
  }
  __syncwarp();
}

/// The blocks that a token looks at, by the weights of those in front of its own. A warp.
__device__ __forceinline__ void store_selection(const native_sparse_launch& launch,
                                                const token_sequence& tokens, std::int64_t token,
                                                std::int64_t kv_head, float* weights) {
  const native_sparse_kernel_args& call = launch.call;
  const std::int64_t own = token / call.block_size;
  weigh_blocks_selected_anyway(call, own, weights);
  const std::int64_t others = launch.looked_slots - 1 < own ? launch.looked_slots - 1 : own;
  const sparse_slots& to = launch.looked_at;
  std::int32_t* const slots = to.data + native_sparse_launch::slot(to, tokens, token, kv_head);
  const auto put = [&](std::int64_t slot, std::int64_t number) {
    slots[slot * to.slot] = static_cast<std::int32_t>(number);
  };
  select_blocks(weights, own, others, put);
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  if (lane == 0) put(others, own);
  const std::int64_t all = call.selected.data != nullptr ? call.block_count : launch.looked_slots;
  for (std::int64_t s = others + 1 + lane; s < all; s += prim::cuda::warp_size) put(s, -1);
}

/// Weights of means, added up over the heads of a group, and the selection of each token.
template <class Kernel>
__global__ void __launch_bounds__(threads)
    native_sparse_select(const __grid_constant__ native_sparse_launch launch, std::int64_t lists) {
  extern __shared__ float native_memory[];
  __shared__ float weights[tile][tile + 1];
  constexpr auto branch = sparse_branch::compressed;
  const native_sparse_kernel_args& call = launch.call;
  const float_tile q(native_memory, call.head_dim);
  const float_tile k(q.end(), call.head_dim);
  const int r = line_of_thread(), j = place_of_thread();
  const std::int64_t blocks = launch.most_blocks();
  float* const sums = launch.weights + blockIdx.x * launch.tokens_of_list() * blocks;
  for (std::int64_t item = blockIdx.x; item < lists * call.kv_heads; item += gridDim.x) {
    const sequence_part part = launch.part(item / call.kv_heads, launch.tokens_of_list());
    if (part.is_empty) continue;
    for (std::int64_t of_group = 0; of_group < launch.lists_of_group(); ++of_group) {
      const row_list list = row_list::of(launch, part, item % call.kv_heads, of_group);
      __syncthreads();
      list.load(q, call.q);
      const auto score_of = [&](std::int64_t first, int count, bool is_for_row) {
        __syncthreads();
        k.load(launch.means_k, count,
               native_sparse_launch::mean_offset(launch.means_k, list.tokens, first, list.kv_head),
               launch.means_k.token);
        __syncthreads();
        const bool sees =
            is_for_row && j < count && first + j < launch.seen(branch, list.token_of(r)).end;
        return sees ? call.softmax_scale * dot(q.row(r), k.row(j), k.columns)
                    : prim::minus_infinity;
      };
      softmax_line softmax;
      list.for_each_tile(launch, branch, [&](std::int64_t first, int count, bool is_for_row) {
        float rescale;
        static_cast<void>(softmax.take(score_of(first, count, is_for_row), rescale));
      });
      const float shift = prim::finite_maximum(prim::finish_row(softmax, nullptr, 0, 0, true).lse);
      list.for_each_tile(launch, branch, [&](std::int64_t first, int count, bool is_for_row) {
        weights[r][j] = expf(score_of(first, count, is_for_row) - shift);
        __syncthreads();
        // A thread adds up the heads of a token.
        const std::int64_t token = list.token + r;
        if (token > list.last_token || j >= count) return;
        float* const to = sums + r * blocks + first + j;
        float sum = of_group == 0 ? 0.0f : *to;
        for (int h = 0; h < list.heads; ++h) sum += weights[r * list.heads + h][j];
        *to = sum;
      });
    }
    __syncthreads();
    const row_list list = row_list::of(launch, part, item % call.kv_heads, 0);
    const int warps = threads / prim::cuda::warp_size;
    for (std::int64_t token = list.token + threadIdx.x / prim::cuda::warp_size;
         token <= list.last_token; token += warps) {
      store_selection(launch, list.tokens, token, list.kv_head,
                      sums + (token - list.token) * blocks);
    }
  }
}

/// Tokens behind the last sequence have no selection.
template <class Kernel>
__global__ void __launch_bounds__(threads)
    clear_unused_slots(const __grid_constant__ native_sparse_kernel_args call) {
  const std::int64_t width = call.kv_heads * call.block_count;
  const std::int64_t count = call.sequences.tokens * width;
  const std::int64_t end = call.sequences.begin[call.sequences.count];
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t at =
           (end < 0 ? 0 : end) * width + std::int64_t{blockIdx.x} * threads + threadIdx.x;
       at < count; at += step) {
    const sparse_slots& to = call.selected;
    to.data[at / width * to.token + at % width / call.block_count * to.head +
            at % call.block_count * to.slot] = -1;
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
