// Gradients of log decays, a chunk and head at a time. With G_t the sum of a channel's log decays
// up to token t of the chunk, S the state in front of it, D the gradient of the state behind it
// times the decay of the token there, W_sj = q_s k_j exp(G_s - G_j) (v_j . d_out_s), and everything
// of one channel, where <S, D> sums over the values,
//
//   d_log_a_t = exp(G_end) <S, D> + sum over s >= t of exp(G_s) q_s (S d_out_s)
//             + sum over j < t of exp(G_end - G_j) k_j (D v_j) + sum over s >= t > j of W_sj
//
// With a bonus u queries read the state in front of their token: exp(G_{s-1}) instead of exp(G_s)
// everywhere, sums over s begin behind t, and D is the gradient as it is. What s adds is then that
// of the token before it. The gradient of u is the sum of (v_t . d_out_t) scale q_t k_t.
//
// The last is a sum of differences, sum over s >= t of (sum over j < s of W_sj - sum over j > s of
// W_js), whose W cancel: those of a pair have the same bits in both, as products of rounded rows
// (chunk_decay_products.hpp), or in f32 where decays leave the range of their factors
// (chunk_decay_pairs.hpp). Sums of rounded d_q and d_k instead would be off by a fourth.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_pair_sums.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_decay_products.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_chunk {
  using memory = decay_memory<Shape>;

 public:
  __device__ __forceinline__ decay_chunk(const decay_gradients& args, memory& shared,
                                         const sequence& all, std::int64_t head)
      : block_(args, shared, all, head) {}

  /// The channels of the keys from `tile` times those of a block on; `last`: the head has no more.
  __device__ __forceinline__ void run(std::int64_t chunk, int tile, bool last) {
    block_.go_to(chunk, tile);
    block_.copy_rows();
    block_.tile_of(block_.args.states.of_s).fetch();
    block_.tile_of(block_.args.states.of_d).fetch();
    decay_products<Element, Shape, Before> products(block_);
    const bool beyond = products.sum_decays();
    prim::cuda::wait_copies<1>();
    const bool multiplies = __syncthreads_or(beyond ? 1 : 0) == 0;
    if (multiplies) products.scale_rows();
    prim::cuda::wait_copies<0>();
    __syncthreads();
    if (multiplies) {
      products.make_gradients();
    } else {
      decay_pair_sums<Element, Shape, Before>(block_).make_gradients();
    }
    __syncthreads();
    if (block_.call.d_g.data != nullptr) add_to_head(tile == 0, last);
  }

 private:
  /// Sums over the channels of the warps to those of the head; to memory, if they are the last.
  __device__ __forceinline__ void add_to_head(bool first, bool last) const {
    const chunked_scan_kernel_args& call = block_.call;
    const int t = static_cast<int>(threadIdx.x);
    if (t < block_.count) {
      float sum = first ? 0.0f : block_.shared.of_head[t];
#pragma unroll
      for (const auto& of_warp : block_.shared.of_warps) sum += of_warp[t];
      block_.shared.of_head[t] = sum;
      if (last) {
        prim::cuda::put_number(call.d_g.data, call.d_g.type,
                               block_.shared.rows_d_g.at(block_.first + t), sum);
      }
    }
    __syncthreads();
  }

  decay_block<Element, Shape> block_;
};

/// blockIdx.x is a sequence, head and tile of its channels, or all of them; blocks of blockIdx.y
/// take chunks in turn.
template <class Element, class Shape, bool Before>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    make_decay_gradients(__grid_constant__ const decay_gradients args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<decay_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, args.tiles, args.call.heads);
  const sequence all = sequence_of<device_code>(args.call, item.sequence);
  if (all.is_rest) {
    if (blockIdx.y != 0 || item.tile != 0) return;
    const auto clear = [&](const chunked_scan_rows& rows, std::int64_t width) {
      if (rows.data == nullptr) return;
      recurrence::sm80::clear_rows(rows, all, item.head, 0, static_cast<int>(width));
    };
    clear(args.call.d_gk, args.call.keys);
    clear(args.call.d_g, 1);
    return;
  }
  if (!all.has_states || all.length <= 0) return;
  decay_chunk<Element, Shape, Before> of_head(args, shared, all, item.head);
  const std::int64_t chunks = (all.length + Shape::tokens - 1) / Shape::tokens;
  const int tiles = static_cast<int>((args.call.keys + Shape::columns - 1) / Shape::columns);
  const int first = static_cast<int>(item.tile), end = args.tiles == tiles ? first + 1 : tiles;
  for (std::int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    for (int tile = first; tile < end; ++tile) of_head.run(chunk, tile, tile + 1 == tiles);
  }
}

}  // namespace tessera::kernels::chunked_scan::sm80
