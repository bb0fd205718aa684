// Attention of f16 and bf16 to selected blocks, tokens side by side at a time: a warp has a token
// and the heads of its group as rows of its products, and a block that several tokens look at is
// brought once for all of them.
//
// Tiles of keys lie in a ring. The warp that is the last to need one brings what comes next in its
// place, so that nobody waits for tokens that look at other blocks.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/selected_blocks.hpp>
#include <tessera/kernels/sparse_attention/sm80/token_rows.hpp>
#include <tessera/kernels/sparse_attention/sm90/token_blocks.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

template <class Kernel>
struct shared_tiles {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = 64;    ///< of a block, whose tiles follow each other
  static constexpr int tokens = 12;  ///< a warp each
  static constexpr int block_threads = tokens * prim::cuda::warp_size;
  using rows = sm80::token_rows<Kernel, keys>;
  using q_tile = typename rows::q_tile;
  using kv_tile = typename rows::kv_tile;
  static constexpr int stage_bytes = 2 * kv_tile::bytes;
  static constexpr int stages = Kernel::config.head_dim == 64 ? 12 : 6;
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
  typename tiles::rows rows;
  prim::cuda::wait_copies<0>();
  __syncwarp();
  rows.load_queries(q_tile, call.softmax_scale, lane);
  __syncthreads();
  if (warp >= tiles::first_stages && warp < tiles::stages && warp < ring.count()) ring.bring(warp);
  if (!is_token) return;

  const auto in_sequence = static_cast<int>(token), block_size = static_cast<int>(call.block_size);
  const float units = tiles::rows::units_of(call.softmax_scale);
  own_blocks<tiles::tokens> own(shared.blocks, warp);
#pragma unroll 1
  for (int place = own.next(); place < shared.blocks.count; place = own.next()) {
    // As far as the token sees them.
    int left = min(in_sequence + 1 - shared.blocks.block[place] * block_size, block_size);
#pragma unroll 1
    for (int n = 0; n < ring.tiles_of_block(); ++n, left -= tiles::keys) {
      const int number = place * ring.tiles_of_block() + n;
      const std::uint32_t tile = ring.wait(number);
      if (left > 0) {
        // Tokens behind this one may see the other keys.
        rows.template add<sm80::unseen_values::anything>(tile, min(left, tiles::keys), units, lane);
      }
      ring.release(number);
    }
  }
  rows.store(launch, shared.part.tokens, in_sequence, shared.kv_head * heads, heads);
}

}  // namespace tessera::kernels::sparse_attention::sm90
