// Which pairs of a tile of queries and the keys of a block are seen, where not all of them are: a
// bit for each of those that a lane has.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// Of a tile a bit for each of its blocks of 16 queries and 16 keys: whether lengths, diagonal and
/// window show some pair of it.
template <class Tiles>
class seen_blocks {
 public:
  static __device__ __forceinline__ seen_blocks all() { return seen_blocks(~0u); }
  /// By whole warps, each lane looks at a block. `first`: the tile's first query.
  static __device__ __forceinline__ seen_blocks of(const key_block& own, std::int64_t first) {
    const auto lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const std::int64_t query = first + lane / columns * 16, key = own.key0 + lane % columns * 16;
    const std::int64_t end = min(query + 16, own.block.seq.q_len);
    const bool some =
        lane < rows * columns && query < end &&
        !prim::intersection(own.visible.keys_of(query, end - 1).some, {key, key + 16}).empty();
    return seen_blocks(__ballot_sync(prim::cuda::all_lanes, some));
  }

  /// Of queries and keys from numbers on, multiples of 16.
  __device__ __forceinline__ bool holds_some(int query, int queries, int key, int keys) const {
    const std::uint32_t of_row = ((1u << keys / 16) - 1) << key / 16;
    std::uint32_t mask = 0;
#pragma unroll
    for (int r = 0; r < queries / 16; ++r) mask |= of_row << r * columns;
    return (bits_ >> query / 16 * columns & mask) != 0;
  }

 private:
  static constexpr int rows = Tiles::queries / 16, columns = Tiles::own / 16;
  static_assert(rows * columns <= 32);

  explicit __device__ seen_blocks(std::uint32_t bits) : bits_(bits) {}

  std::uint32_t bits_;
};

/// Found before the products of a tile, in loops that are not unrolled: what they take is free when
/// accumulators come.
template <class Tiles>
class seen_pairs {
 public:
  static __device__ __forceinline__ seen_pairs all() {
    seen_pairs pairs;
#pragma unroll
    for (std::uint32_t& word : pairs.words_) word = ~0u;
    return pairs;
  }
  /// Those that lengths, diagonal, window, segments and the mask functor show. `first`: a lane's
  /// first query, without the rows below, and its first key.
  template <class Hooks>
  static __device__ __forceinline__ seen_pairs of(const hooked_args<Hooks>& args,
                                                  const key_block& own, const score_place& first) {
    const bounds within = bounds::of(own, first);
    seen_pairs pairs;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const int first_row = w * rows_of_word, left = rows - first_row;
      std::uint32_t bits = 0;
#pragma unroll 1
      for (int r = 0; r < (left < rows_of_word ? left : rows_of_word); ++r) {
        const int row = first_row + r;
        bits |= of_row(args, within, first, row / 2 * 16 + row % 2 * 8) << (r * row_bits);
      }
      pairs.words_[w] = bits;
    }
    return pairs;
  }

  /// How much of a warp's part of a tile lengths, diagonal and window show; what segments or a mask
  /// functor hide beside is `partial`. Without `MaySkip` it is known that something is seen.
  template <bool MaySkip, class Hooks>
  static __device__ __forceinline__ prim::tile_visibility of_part(const hooked_args<Hooks>& args,
                                                                  const key_block& own,
                                                                  std::int64_t query,
                                                                  std::int64_t key) {
    using enum prim::tile_visibility;
    const std::int64_t end = min(query + Tiles::score_rows, own.block.seq.q_len);
    if (MaySkip && query >= end) return skip;
    const prim::key_interval keys{key, key + Tiles::score_keys};
    const prim::block_intervals seen = own.visible.keys_of(query, end - 1);
    if (MaySkip && prim::intersection(seen.some, keys).empty()) return skip;
    const bool asks = Hooks::has_mask || args.call.forward.q_segments.data != nullptr;
    return !asks && end == query + Tiles::score_rows && seen.all.contains(keys) ? full : partial;
  }

  /// Element e of the accumulator of 16 rows and 8 keys, numbers m and n.
  __device__ __forceinline__ bool holds(int m, int n, int e) const {
    const int row = m * 2 + e / 2;
    return (words_[row / rows_of_word] >> (row % rows_of_word * row_bits + n * 2 + e % 2) & 1u) !=
           0;
  }

 private:
  static constexpr int key_tiles = Tiles::score_keys / 8, rows = Tiles::score_rows / 8;
  static constexpr int row_bits = 2 * key_tiles, rows_of_word = 32 / row_bits;
  static constexpr int words = (rows + rows_of_word - 1) / rows_of_word;

  /// Which keys a lane's first row sees, from its first key on: [begin, end) moves by a key for
  /// each row below, and of all rows before `rows` those before `keys`.
  struct bounds {
    int begin, end, keys, rows;

    static __device__ __forceinline__ bounds of(const key_block& own, const score_place& first) {
      constexpr std::int64_t far = 4096;  // behind all rows and keys of a tile
      const auto cut = [](std::int64_t x) {
        return static_cast<int>(x < -far ? -far : x > far ? far : x);
      };
      const prim::row_interval seen_by = own.visible.mask.rows_that_see({first.key, first.key + 1});
      return {cut(first.query - seen_by.end + 1), cut(first.query - seen_by.begin + 1),
              cut(own.visible.k_len - first.key), cut(own.block.seq.q_len - first.query)};
    }
  };
  /// Bits of the lane's keys before number `end` from its first.
  static __device__ __forceinline__ std::uint32_t keys_before(int end) {
    const int keys = min(max(end, 0), Tiles::score_keys);
    return (1u << (keys / 8 * 2 + min(keys % 8, 2))) - 1;
  }

  template <class Hooks>
  static __device__ __forceinline__ std::uint32_t of_row(const hooked_args<Hooks>& args,
                                                         const bounds& within,
                                                         const score_place& first, int row) {
    const attention_kernel_args& of = args.call.forward;
    std::uint32_t bits =
        keys_before(min(within.end + row, within.keys)) & ~keys_before(within.begin + row);
    if (row >= within.rows) bits = 0;
    if (!Hooks::has_mask && of.q_segments.data == nullptr) return bits;
    score_place at = first;
    at.query += row;
#pragma unroll 1
    for (std::uint32_t left = bits; left != 0; left &= left - 1) {
      const int i = __ffs(static_cast<int>(left)) - 1;
      at.key = first.key + i / 2 * 8 + i % 2;
      bool shown = of.q_segments.data == nullptr || same_segment(of, at);
      if constexpr (Hooks::has_mask) shown = shown && args.hooks.mask(at.seen_by_functors());
      if (!shown) bits &= ~(1u << i);
    }
    return bits;
  }

  std::uint32_t words_[words];
};

}  // namespace tessera::kernels::attention_backward::sm80
