// Attention of f16 and bf16 to selected blocks, tokens side by side at a time: a warp has a token
// and the heads of its group as rows of its products, and a block that several tokens look at is
// brought once for all of them.
//
// Tiles of keys lie in a ring. The warp that is the last to need one brings what comes next in its
// place, so that nobody waits for tokens that look at other blocks.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/selected_blocks.hpp>
#include <tessera/kernels/sparse_attention/sm90/token_blocks.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

template <class Kernel>
struct shared_tiles {
  using element = element_t<Kernel::config.type>;
  using words = prim::cuda::half_words<element>;
  static constexpr int width = Kernel::config.head_dim;
  static constexpr int keys = 64;    ///< of a block, whose tiles follow each other
  static constexpr int tokens = 12;  ///< a warp each
  static constexpr int block_threads = tokens * prim::cuda::warp_size;
  using q_tile = prim::cuda::shared_tile<sm80::tile, width>;
  using kv_tile = prim::cuda::shared_tile<keys, width>;
  static constexpr int stage_bytes = 2 * kv_tile::bytes;
  static constexpr int stages = width == 64 ? 12 : 6;
  /// Of these the last hold queries until they are in registers.
  static constexpr int first_stages =
      stages - (tokens * q_tile::bytes + stage_bytes - 1) / stage_bytes;
};

template <class Kernel>
struct shared_blocks_plan {
  using tiles = shared_tiles<Kernel>;
  alignas(1024) unsigned char tile[tiles::stages][tiles::stage_bytes];
  std::uint64_t full[tiles::stages];
  int brought[tiles::stages];  ///< the number of the tile that is being brought
  int needed[tiles::stages];   ///< by so many warps
  sequence_part part;          ///< here, because registers are for products
  std::int64_t kv_head;
  token_blocks<tiles::tokens> blocks;
};

/// Keys and values on their way into the ring.
template <class Kernel>
class key_ring {
  using tiles = shared_tiles<Kernel>;
  using kv_tile = typename tiles::kv_tile;

 public:
  __device__ __forceinline__ key_ring(const native_sparse_launch& launch,
                                      shared_blocks_plan<Kernel>& shared)
      : launch_(launch),
        shared_(shared),
        tiles_of_block_(
            static_cast<int>((launch.call.block_size + tiles::keys - 1) / tiles::keys)) {}
  __device__ __forceinline__ int tiles_of_block() const { return tiles_of_block_; }
  __device__ __forceinline__ int count() const { return shared_.blocks.count * tiles_of_block_; }

  /// Brings a tile, by a warp.
  __device__ __forceinline__ void bring(int number) const {
    const int stage = number % tiles::stages, place = number / tiles_of_block_;
    const unsigned lane = threadIdx.x % prim::cuda::warp_size;
    const std::int64_t first = shared_.blocks.block[place] * launch_.call.block_size;
    const std::int64_t begin = first + (number - place * tiles_of_block_) * tiles::keys;
    const std::int64_t of_block = first + launch_.call.block_size;
    const std::int64_t length = shared_.part.tokens.length;
    const std::int64_t end = length < of_block ? length : of_block;
    const int keys = static_cast<int>(end - begin < tiles::keys ? end - begin : tiles::keys);
    const std::uint32_t to = prim::cuda::shared_address(shared_.tile[stage]);
    copy(to, launch_.call.k, begin, keys, lane);
    copy(to + kv_tile::bytes, launch_.call.v, begin, keys, lane);
    prim::cuda::arrive_after_copies(prim::cuda::shared_address(shared_.full + stage));
    if (lane == 0) {
      *volatile_of(shared_.needed[stage]) = __popc(shared_.blocks.tokens[place]);
      __threadfence_block();
      *volatile_of(shared_.brought[stage]) = number;
    }
    __syncwarp();
  }
  /// Waits for a tile that this warp needs.
  __device__ __forceinline__ std::uint32_t wait(int number) const {
    const int stage = number % tiles::stages;
    while (*volatile_of(shared_.brought[stage]) != number) __nanosleep(20);
    __syncwarp();
    prim::cuda::wait_for_phase(prim::cuda::shared_address(shared_.full + stage),
                               static_cast<std::uint32_t>(number / tiles::stages) & 1u);
    return prim::cuda::shared_address(shared_.tile[stage]);
  }
  /// This warp needs it no more.
  __device__ __forceinline__ void release(int number) const {
    const int stage = number % tiles::stages;
    int left = 0;
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      __threadfence_block();
      left = atomicSub(shared_.needed + stage, 1) - 1;
      __threadfence_block();
    }
    left = __shfl_sync(prim::cuda::all_lanes, left, 0);
    __syncwarp();  // what its first lane saw orders the copies of all
    if (left == 0 && number + tiles::stages < count()) bring(number + tiles::stages);
  }

 private:
  static __device__ __forceinline__ volatile int* volatile_of(int& word) { return &word; }

  /// `count` rows, and zeros behind them.
  __device__ __forceinline__ void copy(std::uint32_t to, const sparse_rows& rows,
                                       std::int64_t begin, int count, unsigned lane) const {
    constexpr int at_once = prim::cuda::warp_size / kv_tile::chunks;
    const int r = static_cast<int>(lane) / kv_tile::chunks;
    const auto chunk = lane % kv_tile::chunks;
    const auto* from =
        static_cast<const typename tiles::element*>(rows.data) +
        native_sparse_launch::offset(rows, shared_.part.tokens, begin + r, shared_.kv_head) +
        chunk * 8;
    const std::int64_t step = at_once * rows.token;
    const std::uint32_t own = to + kv_tile::offset(r, chunk);
#pragma unroll
    for (int i = 0; i < tiles::keys / at_once; ++i) {
      const std::uint32_t down = i * at_once;
      prim::cuda::copy_async_16_or_zeros((own ^ (down % 8 * 16)) + down * kv_tile::row_bytes, from,
                                         static_cast<int>(down) + r < count);
      from += step;
    }
  }

  const native_sparse_launch& launch_;
  shared_blocks_plan<Kernel>& shared_;
  int tiles_of_block_;
};

/// Rows lane / 4 and lane / 4 + 8 of a token; columns of a row are spread over a quad.
template <class Kernel>
struct token_rows {
  using tiles = shared_tiles<Kernel>;
  using words = typename tiles::words;
  using kv_tile = typename tiles::kv_tile;
  static constexpr int groups = tiles::keys / 16, dims = tiles::width / 16;
  prim::cuda::fragment_a q[dims];
  prim::cuda::accumulator out[2 * dims] = {};
  float maximum[2] = {prim::minus_infinity, prim::minus_infinity};
  float denominator[2] = {0.0f, 0.0f};

  __device__ __forceinline__ void load_queries(std::uint32_t tile, unsigned lane) {
#pragma unroll
    for (int d = 0; d < dims; ++d) {
      prim::cuda::load_matrices(q[d].reg,
                                tiles::q_tile::step(tile + tiles::q_tile::lane_of_a(lane), 0, d));
    }
  }
  /// Adds the first `count` keys of a tile.
  __device__ __forceinline__ void add(std::uint32_t keys, int count, float scale, unsigned lane) {
    prim::cuda::accumulator scores[2 * groups] = {};
    const std::uint32_t k_lane = keys + kv_tile::lane_of_b(lane);
#pragma unroll
    for (int d = 0; d < dims; ++d) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        prim::cuda::fragment_b2 k;
        prim::cuda::load_matrices(k.reg, kv_tile::step(k_lane, g, d));
        words::template multiply_add<0>(scores[2 * g], q[d], k);
        words::template multiply_add<1>(scores[2 * g + 1], q[d], k);
      }
    }
#pragma unroll
    for (auto& pair : scores) {
#pragma unroll
      for (float& score : pair.at) score *= scale;
    }
    const int t = static_cast<int>(lane) % 4;
    if (count < tiles::keys) {
#pragma unroll
      for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n * 8 + t * 2 + i % 2 >= count) scores[n].at[i] = prim::minus_infinity;
        }
      }
    }
    weigh(scores);
    const std::uint32_t v_lane = keys + kv_tile::bytes + kv_tile::lane_of_a(lane);
    if (count == tiles::keys) {
      add_values(scores, v_lane, [](int, prim::cuda::fragment_b2&) {});
    } else {
      // Values of keys that the token does not see may be anything.
      add_values(scores, v_lane, [&](int g, prim::cuda::fragment_b2& v) {
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const int key = 16 * g + 8 * eight + 2 * t;
          const std::uint32_t seen =
              (key < count ? 0xffffu : 0u) | (key + 1 < count ? 0xffff0000u : 0u);
          v.reg[eight] &= seen;
          v.reg[2 + eight] &= seen;
        }
      });
    }
  }

 private:
  /// Weights in the place of scores.
  __device__ __forceinline__ void weigh(prim::cuda::accumulator (&scores)[2 * groups]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = maximum[half];
#pragma unroll
      for (const auto& pair : scores) {
        most = fmaxf(most, fmaxf(pair.at[2 * half], pair.at[2 * half + 1]));
      }
      most = prim::cuda::maximum_of_quad(most);
      const float shift = prim::finite_maximum(most);
      if (most != maximum[half]) {
        const float rescale = prim::cuda::exp2_fast((maximum[half] - shift) * prim::log2_e);
        denominator[half] *= rescale;
#pragma unroll
        for (auto& sums : out) {
          sums.at[2 * half] *= rescale;
          sums.at[2 * half + 1] *= rescale;
        }
        maximum[half] = most;
      }
#pragma unroll
      for (auto& pair : scores) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& weight = pair.at[2 * half + odd];
          weight = prim::cuda::exp2_fast((weight - shift) * prim::log2_e);
          denominator[half] += weight;
        }
      }
    }
  }
  /// out += P V, where `mask(group of keys, values)` may clear values.
  template <class Mask>
  __device__ __forceinline__ void add_values(const prim::cuda::accumulator (&weights)[2 * groups],
                                             std::uint32_t v_lane, const Mask& mask) {
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const auto &low = weights[2 * g].at, &high = weights[2 * g + 1].at;
      const prim::cuda::fragment_a p{{words::pack(low[0], low[1]), words::pack(low[2], low[3]),
                                      words::pack(high[0], high[1]),
                                      words::pack(high[2], high[3])}};
#pragma unroll
      for (int d = 0; d < dims; ++d) {
        prim::cuda::fragment_b2 v;
        prim::cuda::load_matrices_transposed(v.reg, kv_tile::step(v_lane, g, d));
        mask(g, v);
        words::template multiply_add<0>(out[2 * d], p, v);
        words::template multiply_add<1>(out[2 * d + 1], p, v);
      }
    }
  }
};

template <class Kernel>
__global__ void __launch_bounds__(shared_tiles<Kernel>::block_threads, 1)
    native_sparse_attend_shared(const __grid_constant__ native_sparse_launch launch) {
  using tiles = shared_tiles<Kernel>;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<shared_blocks_plan<Kernel>*>(shared_memory);
  const native_sparse_kernel_args& call = launch.call;
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const auto warp = static_cast<int>(threadIdx.x / prim::cuda::warp_size);
  const std::int64_t parts = launch.parts(tiles::tokens);
  const sequence_part part = launch.part(blockIdx.x % parts, tiles::tokens);
  if (part.is_empty) return;
  const std::int64_t kv_head = blockIdx.x / parts;
  const std::int64_t token = part.first + warp;
  const bool is_token = token < part.tokens.length;
  const auto heads = static_cast<int>(launch.group());

  if (threadIdx.x < tiles::stages) {
    prim::cuda::init_barrier(prim::cuda::shared_address(shared.full + threadIdx.x),
                             prim::cuda::warp_size);
    shared.brought[threadIdx.x] = -1;
  }
  if (threadIdx.x == 0) {
    shared.part = part;
    shared.kv_head = kv_head;
  }
  prim::cuda::publish_barriers();
  const std::uint32_t q_tile =
      prim::cuda::shared_address(shared.tile[tiles::first_stages]) + warp * tiles::q_tile::bytes;
  if (is_token) {
    sm80::selected_tiles<Kernel>::template copy<typename tiles::q_tile>(
        q_tile, call.q, native_sparse_launch::offset(call.q, part.tokens, token, kv_head * heads),
        call.q.head, heads, lane);
  }
  prim::cuda::commit_copies();
  int mine = -1;
  if (is_token && lane < launch.blocks_of(part.tokens, token, kv_head)) {
    const std::int64_t block = launch.block(part.tokens, token, kv_head, lane);
    const key_range keys = launch.tokens_of_block(block, token);
    if (keys.begin < keys.end) mine = static_cast<int>(block);
  }
  // The first tiles come behind what is needed before them.
  shared.blocks.gather(
      *reinterpret_cast<typename token_blocks<tiles::tokens>::scratch*>(shared.tile[0]), mine);
  __syncthreads();
  const key_ring<Kernel> ring(launch, shared);
  if (warp < tiles::first_stages && warp < ring.count()) ring.bring(warp);
  token_rows<Kernel> rows;
  prim::cuda::wait_copies<0>();
  __syncwarp();
  rows.load_queries(q_tile, lane);
  __syncthreads();
  if (warp >= tiles::first_stages && warp < tiles::stages && warp < ring.count()) ring.bring(warp);
  if (!is_token) return;

  const auto in_sequence = static_cast<int>(token), block_size = static_cast<int>(call.block_size);
  own_blocks<tiles::tokens> own(shared.blocks, warp);
#pragma unroll 1
  for (int place = own.next(); place < shared.blocks.count; place = own.next()) {
    // As far as the token sees them.
    int left = min(in_sequence + 1 - shared.blocks.block[place] * block_size, block_size);
#pragma unroll 1
    for (int n = 0; n < ring.tiles_of_block(); ++n, left -= tiles::keys) {
      const int number = place * ring.tiles_of_block() + n;
      const std::uint32_t tile = ring.wait(number);
      if (left > 0) rows.add(tile, min(left, tiles::keys), call.softmax_scale, lane);
      ring.release(number);
    }
  }
  const float sums[2] = {prim::cuda::sum_of_quad(rows.denominator[0]),
                         prim::cuda::sum_of_quad(rows.denominator[1])};
  sm80::store_selected<Kernel>(launch, shared.part.tokens, in_sequence, shared.kv_head * heads,
                               heads, 0, rows.out, sums);
}

}  // namespace tessera::kernels::sparse_attention::sm90
