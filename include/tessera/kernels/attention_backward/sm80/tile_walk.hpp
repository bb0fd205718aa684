// In which order a block walks through tiles of the other axis, head by head: all that intervals of
// keys leave, or, of hooks that list them, those of which some pair is seen.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// True of hooks whose mask functor says of whole tiles what is seen, and is asked about pairs only
/// in those that are seen in part. Scores of such hooks have no other functor, bias or dropout.
template <class Hooks>
inline constexpr bool lists_tiles = false;

/// What the mask functor of such hooks shows of a tile: a call, for the sums of a loop over tiles
/// leave it few registers.
template <class Hooks>
__device__ __noinline__ prim::tile_visibility ask_about_tile(const hooked_args<Hooks>& args,
                                                             std::int64_t entry, int head,
                                                             const prim::key_interval& queries,
                                                             const prim::key_interval& keys) {
  return args.hooks.mask.classify(
      {entry, head, head + 1, queries.begin, queries.end, keys.begin, keys.end});
}
template <class Hooks>
__device__ __forceinline__ prim::tile_visibility seen_of_tile(const hooked_args<Hooks>& args,
                                                              std::int64_t entry, int head,
                                                              const prim::key_interval& queries,
                                                              const prim::key_interval& keys) {
  if constexpr (lists_tiles<Hooks>) {
    return ask_about_tile(args, entry, head, queries, keys);
  } else {
    return prim::tile_visibility::partial;
  }
}

/// Of pairs whose bits are set those that the mask functor shows: bit 4n + e is 8n + e % 2 columns
/// and e / 2 * 8 rows away from `first`, where columns are keys or queries. A call, too.
template <bool ColumnsAreKeys, class Hooks>
__device__ __noinline__ std::uint32_t ask_about_pairs(const hooked_args<Hooks>& args,
                                                      const score_place& first,
                                                      std::uint32_t seen) {
  std::uint32_t shown = 0;
  for (std::uint32_t left = seen; left != 0; left &= left - 1) {
    const int bit = __ffs(static_cast<int>(left)) - 1;
    const int column = bit / 4 * 8 + bit % 2, row = bit % 4 / 2 * 8;
    score_place at = first;
    at.query += ColumnsAreKeys ? row : column;
    at.key += ColumnsAreKeys ? column : row;
    if (args.hooks.mask(at.seen_by_functors())) shown |= 1u << bit;
  }
  return shown;
}

/// A tile of a head.
struct tile_step {
  int head = 0, tile = 0;
  bool whole = false;  ///< the mask functor hides none of its pairs
};

/// What is seen of `threads` tiles, a bit for each.
struct tile_words {
  std::uint32_t some[threads / 32], whole[threads / 32];
};

/// Tiles of heads up to `end_head`; with `OneHead` of the one that a walk begins at. `look_at(head,
/// tile)` says what is seen of a tile; the threads of a block ask about one each, side by side, and
/// leave the answers in shared memory. By whole blocks.
template <bool Lists, bool OneHead, class LookAt>
class tile_walk {
 public:
  __device__ __forceinline__ tile_walk(tile_interval tiles, int end_head, tile_words& words,
                                       const LookAt& look_at)
      : tiles_(tiles), end_head_(end_head), words_(words), look_at_(look_at) {}

  __device__ __forceinline__ tile_step first_of(int head) { return find({head, tiles_.begin}); }
  __device__ __forceinline__ tile_step after(const tile_step& step) {
    return find({step.head, step.tile + 1});
  }
  __device__ __forceinline__ bool holds(const tile_step& step) const {
    return OneHead ? step.tile < tiles_.end : step.head < end_head_;
  }

 private:
  __device__ __forceinline__ tile_step find(tile_step step) {
    while (Lists && holds(step)) {
      if (!OneHead && step.tile >= tiles_.end) {
        step = {step.head + 1, tiles_.begin};
        continue;
      }
      if (head_ != step.head || part_ != step.tile / threads) look(step);
      const std::uint32_t left = words_.some[step.tile % threads / 32] >> step.tile % 32;
      if (left != 0) {
        step.tile += __ffs(static_cast<int>(left)) - 1;
        step.whole = (words_.whole[step.tile % threads / 32] >> step.tile % 32 & 1u) != 0;
        return step;
      }
      step.tile = step.tile / 32 * 32 + 32;
    }
    if (!Lists && !OneHead && step.tile >= tiles_.end) step = {step.head + 1, tiles_.begin};
    return step;
  }
  /// What is seen of the tiles of the part that a step lies in.
  __device__ __forceinline__ void look(const tile_step& step) {
    using enum prim::tile_visibility;
    head_ = step.head;
    part_ = step.tile / threads;
    const int tile = part_ * threads + static_cast<int>(threadIdx.x);
    const prim::tile_visibility seen =
        tile >= tiles_.begin && tile < tiles_.end ? look_at_(step.head, tile) : skip;
    const std::uint32_t some = __ballot_sync(prim::cuda::all_lanes, seen != skip);
    const std::uint32_t whole = __ballot_sync(prim::cuda::all_lanes, seen == full);
    __syncthreads();  // the words before may still be read
    if (threadIdx.x % 32 == 0) {
      words_.some[threadIdx.x / 32] = some;
      words_.whole[threadIdx.x / 32] = whole;
    }
    __syncthreads();
  }

  const tile_interval tiles_;
  const int end_head_;
  tile_words& words_;
  const LookAt& look_at_;
  int head_ = -1, part_ = -1;
};

/// Weights and gradients of the scores of a warp, `Columns` x 8 of 16 rows, the first of a lane at
/// `first`. `weigh_pair(kind, n, e, visible)` does it for element e of accumulator n, `seen(n, e)`
/// says whether intervals of keys show it.
template <score_kind Kind, int Columns, bool ColumnsAreKeys, class Hooks, class Weigh, class Seen>
__device__ __forceinline__ void weigh_tile(const hooked_args<Hooks>& args, bool whole,
                                           const score_place& first, const Weigh& weigh_pair,
                                           const Seen& seen) {
  const auto weigh_all = [&](auto kind, const auto& visible) {
#pragma unroll
    for (int n = 0; n < Columns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) weigh_pair(kind, n, e, visible(n, e));
    }
  };
  if constexpr (!lists_tiles<Hooks>) {
    weigh_all(kind_constant<Kind>{}, seen);
  } else {
    static_assert(Columns * 4 <= 32);
    std::uint32_t bits = 0;  // bit 4n + e
#pragma unroll
    for (int i = 0; i < Columns * 4; ++i) bits |= seen(i / 4, i % 4) ? 1u << i : 0u;
    if (!whole) bits = ask_about_pairs<ColumnsAreKeys>(args, first, bits);
    const auto is_visible = [&](int n, int e) { return (bits >> (n * 4 + e) & 1u) != 0; };
    if (args.call.forward.soft_cap > 0.0f) {
      weigh_all(kind_constant<score_kind::computed>{}, is_visible);
    } else {
      weigh_all(kind_constant<score_kind::plain>{}, is_visible);
    }
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
