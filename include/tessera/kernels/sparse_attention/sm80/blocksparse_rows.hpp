// What the passes of blocksparse attention share: tiles of rows and keys of a launch, and which
// pairs of them see each other.
#pragma once

#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

template <class Mask>
struct blocksparse_launch {
  blocksparse_kernel_args call{};
  pairs_of<Mask> pairs{};
  float* corrections = nullptr;  ///< D of every row: [batch][q_heads][q_len]

  std::int64_t row_tiles() const { return (call.q_len + tile - 1) / tile; }
  std::int64_t key_tiles() const { return (call.kv_len + tile - 1) / tile; }
  __device__ __forceinline__ std::int64_t group() const { return call.q_heads / call.kv_heads; }
};

/// Element (entry, head, token, 0).
template <class Tensor>
__device__ __forceinline__ std::int64_t offset_in(const Tensor& of, std::int64_t entry,
                                                  std::int64_t head, std::int64_t token) {
  return entry * of.entry + head * of.head + token * of.token;
}

/// Up to 16 rows or keys of an entry and head, from `first` on.
struct tile_place {
  std::int64_t entry = 0, head = 0, first = 0;
  int count = 0;

  /// Tile number `item` of [entries][heads][tiles].
  static __device__ __forceinline__ tile_place of(std::int64_t item, std::int64_t heads,
                                                  std::int64_t length) {
    const std::int64_t tiles = (length + tile - 1) / tile;
    tile_place place{item / tiles / heads, item / tiles % heads, item % tiles * tile};
    const std::int64_t left = length - place.first;
    place.count = left < tile ? static_cast<int>(left) : tile;
    return place;
  }
  __device__ __forceinline__ void load(const float_tile& to, const sparse_rows& from) const {
    to.load(from, count, offset_in(from, entry, head, first), from.token);
  }
};

/// How much the tiles of keys are seen, or seen by, that 256 threads ask about at once.
struct seen_tiles {
  prim::tile_visibility of[threads];

  /// All threads: the answers for tiles [first, first + 256), of which there are `count`.
  template <class Classify>
  __device__ __forceinline__ void look(std::int64_t first, std::int64_t count,
                                       const Classify& classify) {
    __syncthreads();
    const std::int64_t own = first + threadIdx.x;
    of[threadIdx.x] = own < count ? classify(own) : prim::tile_visibility::skip;
    __syncthreads();
  }
};

/// Rows against tiles of keys: calls body(keys, seen) for those that they see some of. All threads
/// of the block.
template <class Mask, class Body>
__device__ __forceinline__ void for_each_seen_tile(const blocksparse_launch<Mask>& launch,
                                                   const tile_place& rows, seen_tiles& seen,
                                                   const Body& body) {
  const std::int64_t tiles = (launch.call.kv_len + tile - 1) / tile;
  const auto keys_of = [&](std::int64_t number) {
    const std::int64_t first = number * tile, left = launch.call.kv_len - first;
    return tile_place{rows.entry, rows.head / launch.group(), first,
                      left < tile ? static_cast<int>(left) : tile};
  };
  for (std::int64_t first = 0; first < tiles; first += threads) {
    seen.look(first, tiles, [&](std::int64_t number) {
      const tile_place keys = keys_of(number);
      const int head = static_cast<int>(rows.head);
      return launch.pairs.classify({rows.entry, head, head + 1, rows.first, rows.first + rows.count,
                                    keys.first, keys.first + keys.count});
    });
    const int count = tiles - first < threads ? static_cast<int>(tiles - first) : threads;
    for (int n = 0; n < count; ++n) {
      if (seen.of[n] == prim::tile_visibility::skip) continue;
      body(keys_of(first + n), seen.of[n]);
    }
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
