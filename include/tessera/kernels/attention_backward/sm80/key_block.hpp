// The keys that a block of threads owns, and the queries that see them.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/tile_scan.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// Of some tiles of queries those from the first to the last with a query whose segment may be one
/// of the keys'. For all threads of a warp.
template <int Queries>
__device__ tile_interval tiles_of_segments(const attention_kernel_args& of,
                                           const prim::sequence& seq, tile_interval tiles,
                                           const prim::key_interval& keys) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const std::int32_t* const key_ids = of.kv_segments.data + seq.index * of.kv_segments.batch;
  kernels::attention::id_range of_keys;
  for (std::int64_t key = keys.begin + lane; key < keys.end; key += prim::cuda::warp_size) {
    of_keys.add(key_ids[key * of.kv_segments.row]);
  }
  of_keys.gather();
  const std::int32_t* const query_ids = of.q_segments.data + seq.index * of.q_segments.batch;
  tile_interval some{tiles.end, tiles.begin};
#pragma unroll 4
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    bool meets = false;
#pragma unroll
    for (int r = 0; r < Queries; r += prim::cuda::warp_size) {
      const std::int64_t query = std::int64_t{tile} * Queries + r + lane;
      const std::int32_t id = query < seq.q_len ? query_ids[query * of.q_segments.row] : -1;
      meets = meets || (id >= of_keys.least && id <= of_keys.most);
    }
    if (!prim::cuda::any_of_warp(meets)) continue;
    some.begin = some.begin < tile ? some.begin : tile;
    some.end = tile + 1;
  }
  return some;
}

/// `Tiles::own` keys of a key/value head, which the queries of a group of heads see, in tiles of
/// `Tiles::queries`.
struct key_block {
  std::int64_t key0 = 0;
  int kv_head = 0;
  block_sequence block{};
  prim::row_visibility<mask_mode::window> visible{};
  prim::key_interval keys{};  ///< those of the sequence
  tile_interval seen_by{};
  int group = 0;  ///< heads
  int count = 0;  ///< tiles of a head
  int steps = 0;  ///< tiles of all heads

  template <class Tiles>
  static __device__ __forceinline__ key_block of(const launch_args& args, std::int64_t item) {
    const attention_kernel_args& call = args.call.forward;
    key_block own;
    own.key0 = item % args.tiles * Tiles::own;
    own.kv_head = static_cast<int>(item / args.tiles % call.kv_heads);
    own.block = block_sequence::of(call, item / args.tiles / call.kv_heads);
    if (own.outside()) return own;
    const prim::sequence& seq = own.block.seq;
    const std::int64_t end = own.key0 + Tiles::own;
    own.keys = {own.key0, end < seq.k_len ? end : seq.k_len};
    own.visible = kernels::attention::visibility_of<mask_mode::window>(call, seq);
    own.seen_by = tiles_that_see<Tiles::queries>(own.visible, seq.q_len, own.keys);
    if (call.q_segments.data != nullptr) {
      own.seen_by = tiles_of_segments<Tiles::queries>(call, seq, own.seen_by, own.keys);
    }
    own.group = kernels::attention::group_of(call);
    own.count = own.seen_by.end - own.seen_by.begin;
    own.steps = own.keys.empty() || own.count <= 0 ? 0 : own.count * own.group;
    return own;
  }

  /// Behind the last key whose gradient is written.
  __device__ __forceinline__ bool outside() const { return key0 >= block.all_k; }
  /// Keys of the sequence among those of the block.
  __device__ __forceinline__ int size() const { return static_cast<int>(keys.end - key0); }
  /// Whether each of `queries` queries from `first` on sees each of `own` keys.
  __device__ __forceinline__ bool is_seen(std::int64_t first, int queries, int own) const {
    return first + queries <= block.seq.q_len &&
           visible.keys_of(first, first + queries - 1).all.contains({key0, key0 + own});
  }
};

}  // namespace tessera::kernels::attention_backward::sm80
