// What chunks are before any state is known, with decays of channels: their sums, rows that read
// and write states, and M and P of pairs of tokens from rows with levels. `for each chunk { rows;
// sums; scaled rows; A and P; M; store }`; blocks share nothing.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_pieces.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channels.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Shared memory of a block.
template <class Element, class Shape>
struct channel_weights_memory {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];  ///< then as pairs take it
  unsigned char k[Shape::key_rows::bytes];                ///< likewise, times beta
  unsigned char writes[Shape::key_rows::bytes];
  solved_rows solved;
  channel_levels<Shape::keys> levels;
  typename channel_sums<Element, Shape>::part_sums ends;
  float beta[Shape::tokens];
  float scale_q[Shape::tokens], scale_k[Shape::tokens];
  ordered_rows rows_q, rows_k, rows_g, rows_beta;
};

/// Gates of a chunk to memory; from here on the scale of the call is in that of q.
template <class Memory>
__device__ __forceinline__ void store_channel_gates(const chunk_back_args& args, Memory& shared,
                                                    chunk_gates& to) {
  const int row = static_cast<int>(threadIdx.x);
  if (row >= tokens_of_chunk) return;
  to.beta[row] = shared.beta[row];
  to.scale_k[row] = shared.scale_k[row];
  to.inverse_q[row] = shared.scale_q[row];
  to.scale_q[row] = shared.scale_q[row] *= args.call.scale;
}

/// A and P of a warp's 16 tokens: A to shared memory, two numbers of P at a time to put(row, tile,
/// word).
template <class Element, class Shape, class Memory, class Put>
__device__ __forceinline__ void make_channel_pairs(Memory& shared, int block, const Put& put) {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto own = static_cast<std::uint32_t>(lane);
  const std::uint32_t q = prim::cuda::shared_address(shared.q) + key_rows::lane_of_a(own);
  const std::uint32_t k = prim::cuda::shared_address(shared.k) + key_rows::lane_of_a(own);
  const std::uint32_t writes = prim::cuda::shared_address(shared.writes) + key_rows::lane_of_b(own);
  prim::cuda::accumulator reads[8] = {}, scores[8] = {};
#pragma unroll 1
  for (int depth = 0; depth < Shape::keys / 16; ++depth) {
    prim::cuda::fragment_a of_q, of_k;
    prim::cuda::load_matrices(of_q.reg, key_rows::step(q, block, depth));
    prim::cuda::load_matrices(of_k.reg, key_rows::step(k, block, depth));
    const int channel = depth * 16 + lane % 4 * 2;
    // Registers of an operand A: rows of the first tile and of the second, by channels.
    std::uint32_t level[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      level[i] = shared.levels.pair(2 * block + i % 2, channel + i / 2 * 8);
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair > block) break;
      prim::cuda::fragment_b2 of_writes;
      prim::cuda::load_matrices(of_writes.reg, key_rows::step(writes, pair, depth));
      const auto add = [&]<int Half>() {
        constexpr int half = Half;
        prim::cuda::fragment_a q_there, k_there;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t powers =
              powers_of(level[i], shared.levels.pair(2 * pair + half, channel + i / 2 * 8));
          q_there.reg[i] = times_powers(of_q.reg[i], powers);
          k_there.reg[i] = times_powers(of_k.reg[i], powers);
        }
        words::template multiply_add<half>(reads[2 * pair + half], q_there, of_writes);
        words::template multiply_add<half>(scores[2 * pair + half], k_there, of_writes);
      };
      add.template operator()<0>();
      add.template operator()<1>();
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block * 16 + lane / 4 + half * 8;
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      if (tile / 2 > block) break;
      const int token = tile * 8 + lane % 4 * 2;
      const float* const p = reads[tile].at + 2 * half;
      const float* const a = scores[tile].at + 2 * half;
      put(row, tile, words::pack(token <= row ? p[0] : 0.0f, token + 1 <= row ? p[1] : 0.0f));
      *reinterpret_cast<float2*>(&shared.solved[row][token]) =
          make_float2(token < row ? a[0] : 0.0f, token + 1 < row ? a[1] : 0.0f);
    }
  }
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 3)
    make_channel_weights(__grid_constant__ const chunk_back_args args) {
  static_assert(Shape::warps == 4);
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<channel_weights_memory<Element, Shape>*>(memory);
  const delta_rule_kernel_args& call = args.call;
  const recurrence::tile_item item(blockIdx.x, 1, call.value_heads);
  const sequence all = sequence_of<device_code>(call, item.sequence);
  if (all.is_rest || !all.has_states || all.length == 0) return;
  if (threadIdx.x == 0) find_rows_of_weights(shared, call, all, item.head);
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int keys = static_cast<int>(call.key_dim);
  const std::int64_t chunks = (all.length + Shape::tokens - 1) / Shape::tokens;
  for (std::int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    const std::int64_t first = chunk * Shape::tokens, place = args.place_of(all, chunk, item.head);
    const int count = static_cast<int>(min(all.length - first, std::int64_t{Shape::tokens}));
    copy_queries_and_keys<Element, Shape>(shared, call, first, count, keys);
    if (thread < Shape::tokens) {
      shared.beta[thread] =
          thread < count ? beta_of<device_code>(
                               call, prim::cuda::number_at(call.beta.data, call.beta.type,
                                                           shared.rows_beta.at(first + thread)))
                         : 0.0f;
    }
    channel_sums<Element, Shape> sums(call, item.head, args.sums_of(place, Shape::keys));
    sums.add_up(shared.rows_g, first, count, shared.ends);
    prim::cuda::wait_copies<0>();
    __syncthreads();
    measure_rows<Element, Shape>(shared, call.normalizes);
    sums.add_earlier(shared.ends);
    __syncthreads();
    store_channel_gates(args, shared, args.gates[place]);
    __syncthreads();
    sums.scale(shared, args.rows_of(place, Shape::keys), args.whole + place * Shape::keys);
    __syncthreads();
    unsigned char* const weights = args.weights + place * Shape::weight_rows::bytes;
    unsigned char* const inverse = args.inverses + place * Shape::weight_rows::bytes;
    make_channel_pairs<Element, Shape>(shared, warp, [&](int row, int tile, std::uint32_t word) {
      *reinterpret_cast<std::uint32_t*>(weights + weight_offset<Shape>(row, tile)) = word;
    });
    const auto put = [&](int row, int tile, const prim::cuda::accumulator& numbers, float sign) {
      put_rounded<Element, Shape>(row, tile, numbers, sign,
                                  [&](std::uint32_t offset, std::uint32_t word) {
                                    *reinterpret_cast<std::uint32_t*>(inverse + offset) = word;
                                  });
    };
    invert_diagonal(shared.solved, warp, put);
    __syncthreads();
    invert_below(shared.solved, warp, put);
    __syncthreads();
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
