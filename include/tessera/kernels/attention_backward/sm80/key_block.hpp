// The keys that a block of threads owns, and the queries that see them.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/tile_scan.hpp>
#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// The first tile of a sequence among the tiles of all keys, of `Own` each.
template <int Own>
__host__ __device__ std::int64_t first_key_tile(const attention_kernel_args& of, std::int64_t index,
                                                std::int64_t k_begin) {
  return of.cu_seqlens_k != nullptr ? k_begin / Own + index : index * ((of.kv_len + Own - 1) / Own);
}

/// Tiles of keys at most.
template <int Own>
std::int64_t key_tiles_of(const attention_kernel_args& of) {
  return first_key_tile<Own>(of, of.batch, of.kv_len) + 1;
}

/// Blocks of a packed launch go through the tiles of all sequences, one behind the other
/// (`packed_tile_of`), instead of as many of each as the longest might have. Not in turns: whatever
/// offsets hold, there is the block that another waits for.
template <class Tiles, bool InTurns>
__host__ __device__ bool goes_through_slots(const attention_kernel_args& of) {
  return !InTurns && Tiles::finds_sequences && of.cu_seqlens_q != nullptr;
}

/// The tiles of queries that may see a tile of keys; with segments those from the first to the last
/// with a query whose segment may be one of the keys', and of these the ones that are of the keys'
/// segment with all queries, if they are neighbours. A block for each tile of keys.
template <class Tiles>
__global__ void __launch_bounds__(threads)
    describe_tiles(const __grid_constant__ launch_args args) {
  constexpr int queries = Tiles::queries, own = Tiles::own;
  constexpr int lanes = prim::cuda::warp_size, warps = threads / lanes;
  prim::cuda::wait_for_grid_before();
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t index = blockIdx.x / args.tiles, tile_of_keys = blockIdx.x % args.tiles;
  const block_sequence block = block_sequence::of(of, index);
  const prim::sequence& seq = block.seq;
  const std::int64_t key0 = tile_of_keys * own;
  const prim::key_interval keys{key0, key0 + own < seq.k_len ? key0 + own : seq.k_len};
  if (keys.empty()) return;
  __shared__ int begin, end, whole_begin, whole_end, whole;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const tile_interval tiles = tiles_that_see<queries>(
      kernels::attention::visibility_of<mask_mode::window>(of, seq), seq.q_len, keys);
  if (threadIdx.x == 0) {
    begin = whole_begin = tiles.end;
    end = whole_end = tiles.begin;
    whole = 0;
  }
  if (of.q_segments.data == nullptr) {
    if (threadIdx.x == 0) {
      args.seen_by[first_key_tile<own>(of, seq.index, seq.k_begin) + tile_of_keys] = tiles;
    }
    return;
  }
  const std::int32_t* const key_ids = of.kv_segments.data + seq.index * of.kv_segments.batch;
  kernels::attention::id_range of_keys;
  for (std::int64_t key = keys.begin + lane; key < keys.end; key += lanes) {
    of_keys.add(key_ids[key * of.kv_segments.row]);
  }
  of_keys.gather();
  const std::int32_t* const query_ids = of.q_segments.data + seq.index * of.q_segments.batch;
  __syncthreads();
#pragma unroll 4
  for (int tile = tiles.begin + static_cast<int>(threadIdx.x) / lanes; tile < tiles.end;
       tile += warps) {
    bool meets = false, same = of_keys.least >= 0 && of_keys.is_only(of_keys.least);
#pragma unroll
    for (int r = 0; r < queries; r += lanes) {
      const std::int64_t query = std::int64_t{tile} * queries + r + lane;
      const std::int32_t id = query < seq.q_len ? query_ids[query * of.q_segments.row] : -1;
      meets = meets || (id >= of_keys.least && id <= of_keys.most);
      same = same && id == of_keys.least;
    }
    if (!prim::cuda::any_of_warp(!same) && lane == 0) {
      atomicMin(&whole_begin, tile);
      atomicMax(&whole_end, tile + 1);
      atomicAdd(&whole, 1);
    }
    if (prim::cuda::any_of_warp(meets) && lane == 0) {
      atomicMin(&begin, tile);
      atomicMax(&end, tile + 1);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const std::int64_t to = first_key_tile<own>(of, seq.index, seq.k_begin) + tile_of_keys;
    args.seen_by[to] = {begin, end};
    args.of_segment[to] =
        whole == whole_end - whole_begin ? tile_interval{whole_begin, whole_end} : tile_interval{};
  }
}

/// Keys and values of a block that lie in shared memory, some of which are not finite: says which
/// (`key_taint`), and makes their rows zeros. For the first `Threads` threads.
template <class Element, class Keys, class Values, int Threads>
__device__ __noinline__ void contain_taint(std::uint32_t keys, std::uint32_t values,
                                           key_taint* taint, int count) {
  const auto taint_of = [](auto tile_of_rows, std::uint32_t tile, int row) {
    using rows = decltype(tile_of_rows);
    bool finite = true;
    for (int chunk = 0; chunk < rows::chunks; ++chunk) {
      std::uint32_t words[4];
      prim::cuda::load_shared_16(
          words, tile + rows::offset(static_cast<unsigned>(row), static_cast<unsigned>(chunk)));
      for (const std::uint32_t word : words) {
        finite = finite && !prim::cuda::any_not_finite<Element>(word);
      }
    }
    return finite ? 0.0f : not_a_number();
  };
  for (int r = static_cast<int>(threadIdx.x); r < count; r += Threads) {
    taint[r] = {taint_of(Keys{}, keys, r), taint_of(Values{}, values, r)};
  }
  prim::cuda::wait_for_threads(0, Threads);
  clear_rows<Keys, Threads>(keys, [&](int r) { return r >= count || taint[r].k == 0.0f; });
  clear_rows<Values, Threads>(values, [&](int r) { return r >= count || taint[r].v == 0.0f; });
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
  tile_interval seen_by_next{};  ///< in turns: of the next block of keys
  int group = 0;                 ///< heads
  int count = 0;                 ///< tiles of a head
  int steps = 0;                 ///< tiles of all heads

  template <class Tiles, bool InTurns>
  static __device__ __forceinline__ key_block of(const launch_args& args, std::int64_t item) {
    const attention_kernel_args& call = args.call.forward;
    key_block own;
    // Less than 2^31 items: quotients of 64 bits take as long as a tile.
    const auto number = static_cast<unsigned>(item), tiles = static_cast<unsigned>(args.tiles);
    unsigned head = number / tiles, tile = number - head * tiles;
    if constexpr (InTurns) {
      // Blocks of one head run one behind the other: those of all heads of a section take turns.
      const auto all_heads = static_cast<unsigned>(args.section);
      const unsigned section = head / all_heads * all_heads;
      const unsigned inside = number - section * tiles;
      const unsigned heads = min(all_heads, gridDim.x / tiles - section);
      tile = tiles - 1 - inside / heads;
      head = section + inside % heads;
    }
    const auto kv_heads = static_cast<unsigned>(call.kv_heads), entry = head / kv_heads;
    own.kv_head = static_cast<int>(head - entry * kv_heads);
    packed_tile place{entry, tile};
    if (goes_through_slots<Tiles, InTurns>(call)) {
      place = packed_tile_of<Tiles::own>(call.cu_seqlens_k, call.batch, tile);
    }
    own.key0 = place.tile * Tiles::own;
    own.block = block_sequence::of(call, place.index);
    if (own.outside()) return own;
    const prim::sequence& seq = own.block.seq;
    const std::int64_t end = own.key0 + Tiles::own;
    own.keys = {own.key0, end < seq.k_len ? end : seq.k_len};
    own.visible = kernels::attention::visibility_of<mask_mode::window>(call, seq);
    own.seen_by = tiles_that_see<Tiles::queries>(own.visible, seq.q_len, own.keys);
    const tile_interval* const known =
        args.seen_by + first_key_tile<Tiles::own>(call, seq.index, seq.k_begin) + place.tile;
    if (InTurns && end < seq.k_len) own.seen_by_next = known[1];
    if (call.q_segments.data != nullptr) {
      const tile_interval some = *known;
      own.seen_by.begin = max(own.seen_by.begin, some.begin);
      own.seen_by.end = min(own.seen_by.end, some.end);
    }
    own.group = kernels::attention::group_of(call);
    own.count = own.seen_by.end - own.seen_by.begin;
    own.steps = own.keys.empty() || own.count <= 0 ? 0 : own.count * own.group;
    return own;
  }

  /// Whole tiles whose queries all see all keys of a block of `Own`.
  template <int Queries, int Own>
  __device__ __forceinline__ tile_interval seen_by_all(const launch_args& args) const {
    const attention_kernel_args& call = args.call.forward;
    tile_interval tiles = tiles_that_see_all<Queries>(visible, block.seq.q_len, {key0, key0 + Own});
    if (call.q_segments.data == nullptr) return tiles;
    const tile_interval same =
        args.of_segment[first_key_tile<Own>(call, block.seq.index, block.seq.k_begin) + key0 / Own];
    return {max(tiles.begin, same.begin), min(tiles.end, same.end)};
  }

  /// Behind the last key whose gradient is written.
  __device__ __forceinline__ bool outside() const { return key0 < 0 || key0 >= block.all_k; }
  /// Keys of the sequence among those of the block.
  __device__ __forceinline__ int size() const { return static_cast<int>(keys.end - key0); }
};

/// The tiles of queries of a group of heads, one after the other.
template <bool InTurns>
struct tile_order {
  int head = 0, tile = 0;
  int left = 0;  ///< tiles of the head; not counted in turns, where the last one ends a head

  /// Blocks of neighbouring keys run beside each other: each begins with other queries, or they
  /// would add to the same sums of d_q at the same time. Those that take turns begin with the
  /// first.
  static __device__ __forceinline__ tile_order of_block(const key_block& own, int keys) {
    tile_order order{own.kv_head * own.group, own.seen_by.begin, own.count};
    if (!InTurns && own.steps > 0) order.tile += static_cast<int>(own.key0) / keys % own.count;
    return order;
  }
  __device__ __forceinline__ void advance(const key_block& own) {
    const bool last = ++tile == own.seen_by.end;
    if (last) tile = own.seen_by.begin;
    if (InTurns ? last : --left == 0) {
      left = own.count;
      ++head;
    }
  }
  /// The one before, behind the first.
  __device__ __forceinline__ tile_order before(const key_block& own) const requires InTurns {
    const bool first = tile == own.seen_by.begin;
    return {first ? head - 1 : head, (first ? own.seen_by.end : tile) - 1};
  }
};

}  // namespace tessera::kernels::attention_backward::sm80
