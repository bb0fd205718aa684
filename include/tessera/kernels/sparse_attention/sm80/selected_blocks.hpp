// Attention of f16 and bf16 to selected blocks on the matrix unit: a warp has a token and up to 16
// heads of a group, whose queries are the rows of its products, and goes through the blocks of the
// token. All rows see all keys of a tile, so that nothing is hidden but what a tile has too many.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/token_rows.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Tiles of a warp: queries, and keys and values of which some arrive while others are worked on.
template <class Kernel>
struct selected_tiles {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = 32;
  static constexpr int warps = 2;
  using rows = token_rows<Kernel, keys>;
  using q_tile = typename rows::q_tile;
  using kv_tile = typename rows::kv_tile;
  static constexpr int stage_bytes = 2 * kv_tile::bytes;
  static constexpr int warp_bytes = q_tile::bytes + 2 * stage_bytes;
  static constexpr int shared_bytes = warps * warp_bytes;

  /// Starts the copy of `count` rows, `stride` elements apart; those behind become zeros. A warp.
  template <class Tile>
  static __device__ __forceinline__ void copy(std::uint32_t to, const sparse_rows& from,
                                              std::int64_t first, std::int64_t stride, int count,
                                              unsigned lane) {
    const auto* const rows = static_cast<const element*>(from.data) + first;
#pragma unroll 4
    for (unsigned at = lane; at < Tile::rows * Tile::chunks; at += prim::cuda::warp_size) {
      const unsigned r = at / Tile::chunks, chunk = at % Tile::chunks;
      const bool present = static_cast<int>(r) < count;
      prim::cuda::copy_async_16(to + Tile::offset(r, chunk),
                                present ? rows + r * stride + chunk * 8 : rows, present ? 16u : 0u);
    }
  }
};

/// The keys of a token's blocks, some at a time.
struct block_cursor {
  std::int64_t slot = -1;
  key_range keys{};

  __device__ __forceinline__ bool is_at_end() const { return keys.begin >= keys.end; }
  /// Goes on by `step` keys, or to the next block that has any.
  __device__ __forceinline__ block_cursor next(const native_sparse_launch& launch,
                                               const token_sequence& tokens, std::int64_t token,
                                               std::int64_t kv_head, std::int64_t slots,
                                               int step) const {
    block_cursor at{slot, {keys.begin + step, keys.end}};
    while (at.is_at_end() && ++at.slot < slots) {
      at.keys = launch.tokens_of_block(launch.block(tokens, token, kv_head, at.slot), token);
    }
    return at;
  }
};

template <class Kernel>
__global__ void __launch_bounds__(selected_tiles<Kernel>::warps * 32)
    native_sparse_attend_selected(const __grid_constant__ native_sparse_launch launch,
                                  std::int64_t items) {
  using tiles = selected_tiles<Kernel>;
  using kv_tile = typename tiles::kv_tile;
  extern __shared__ __align__(1024) unsigned char selected_memory[];
  const native_sparse_kernel_args& call = launch.call;
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const unsigned warp = threadIdx.x / prim::cuda::warp_size;
  const std::uint32_t q_tile =
      prim::cuda::shared_address(selected_memory) + warp * tiles::warp_bytes;
  const std::uint32_t stages = q_tile + tiles::q_tile::bytes;

  const std::int64_t item = std::int64_t{blockIdx.x} * tiles::warps + warp;
  if (item >= items) return;
  // Tokens go first: warps side by side read the keys of one head.
  const std::int64_t parts = launch.parts(1);
  const sequence_part part = launch.part(item % parts, 1);
  if (part.is_empty) return;
  const token_sequence tokens = part.tokens;
  const std::int64_t token = part.first;
  const std::int64_t kv_head = item / parts / launch.lists_of_group();
  const std::int64_t in_group = item / parts % launch.lists_of_group() * tile;
  const std::int64_t first_head = kv_head * launch.group() + in_group;
  const std::int64_t heads_left = launch.group() - in_group;
  const int heads = static_cast<int>(heads_left < tile ? heads_left : tile);

  const std::int64_t slots = launch.blocks_of(tokens, token, kv_head);
  const auto next_of = [&](const block_cursor& at) {
    return at.next(launch, tokens, token, kv_head, slots, tiles::keys);
  };
  const auto count_of = [](const block_cursor& at) {
    const std::int64_t left = at.keys.end - at.keys.begin;
    return static_cast<int>(left < tiles::keys ? left : tiles::keys);
  };
  const auto copy = [&](const block_cursor& at, std::uint32_t to) {
    if (!at.is_at_end()) {
      const auto offset = [&](const sparse_rows& of) {
        return native_sparse_launch::offset(of, tokens, at.keys.begin, kv_head);
      };
      tiles::template copy<kv_tile>(to, call.k, offset(call.k), call.k.token, count_of(at), lane);
      tiles::template copy<kv_tile>(to + kv_tile::bytes, call.v, offset(call.v), call.v.token,
                                    count_of(at), lane);
    }
    prim::cuda::commit_copies();
  };

  tiles::template copy<typename tiles::q_tile>(
      q_tile, call.q, native_sparse_launch::offset(call.q, tokens, token, first_head), call.q.head,
      heads, lane);
  block_cursor now = next_of({-1, {0, 0}});
  copy(now, stages);
  prim::cuda::wait_copies<0>();
  __syncwarp();
  typename tiles::rows rows;
  rows.load_queries(q_tile, call.softmax_scale, lane);
  const float units = tiles::rows::units_of(call.softmax_scale);

  std::uint32_t stage = 0;
#pragma unroll 1
  while (!now.is_at_end()) {
    const block_cursor next = next_of(now);
    copy(next, stages + (stage ^ 1u) * tiles::stage_bytes);
    prim::cuda::wait_copies<1>();
    __syncwarp();
    rows.template add<unseen_values::zeros>(stages + stage * tiles::stage_bytes, count_of(now),
                                            units, lane);
    __syncwarp();
    now = next;
    stage ^= 1u;
  }

  rows.store(launch, tokens, token, first_head, heads);
}

}  // namespace tessera::kernels::sparse_attention::sm80
