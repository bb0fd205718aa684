// Who sees whom in blocksparse attention, asked pair by pair or of whole tiles: a mask functor of
// the kernels of attention, and what rows of any type go by. Causality, window and chunks are
// together an interval of positions for each row; segments, the mask, the mask of blocks and a
// functor hide more. Bounds of positions and segments that lie in memory are made first.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/common/tile_blocks.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

inline constexpr int bounds_step = 16;  ///< rows or keys whose bounds are known together
inline constexpr int bounds_threads = 128;

/// Bounds of some numbers; of none, `least` is above `most`.
template <class Number>
struct number_bounds {
  Number least = std::numeric_limits<Number>::max();
  Number most = std::numeric_limits<Number>::min();

  __device__ __forceinline__ void add(const number_bounds& other) {
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
  }
  __device__ __forceinline__ void add(Number number) { add(number_bounds{number, number}); }
  __device__ __forceinline__ bool meets(const number_bounds& other) const {
    return least <= other.most && other.least <= most;
  }
  __device__ __forceinline__ bool is_one_number() const { return least == most; }
};

/// Of keys.
struct key_bounds {
  number_bounds<std::int64_t> positions{};
  number_bounds<std::int32_t> segments{};
  __device__ void add(const key_bounds& other) {
    positions.add(other.positions);
    segments.add(other.segments);
  }
};

/// Of the rows that see anything: both ends of their intervals of positions.
struct row_bounds {
  number_bounds<std::int64_t> first{}, last{};
  number_bounds<std::int32_t> segments{};
  bool all_see = true;  ///< no row has an empty interval
  __device__ void add(const row_bounds& other) {
    first.add(other.first);
    last.add(other.last);
    segments.add(other.segments);
    all_see = all_see && other.all_see;
  }
};

/// Positions [first, last] and the segment that a row sees.
struct row_view {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int32_t segment = 0;
};

/// Which pairs of a launch see each other.
struct visible_pairs {
  sparse_numbers q_segments{}, kv_segments{}, q_positions{}, kv_positions{};
  sparse_mask mask{}, block_mask{};
  std::int64_t q_len = 0, kv_len = 0;
  std::int64_t first_position = 0, window_left = 0, window_right = 0, chunk_size = 0;
  std::int64_t block_q = 1, block_k = 1;
  bool causal = false;
  /// Of each 16 rows and keys of each entry; null: they follow from their numbers.
  key_bounds* keys = nullptr;
  row_bounds* rows = nullptr;

  static constexpr std::int64_t far = blocksparse_kernel_args::far;
  static visible_pairs of(const blocksparse_kernel_args& call) {
    return {.q_segments = call.q_segments,
            .kv_segments = call.kv_segments,
            .q_positions = call.q_positions,
            .kv_positions = call.kv_positions,
            .mask = call.mask,
            .block_mask = call.block_mask,
            .q_len = call.q_len,
            .kv_len = call.kv_len,
            .first_position = call.first_position,
            .window_left = call.window_left,
            .window_right = call.window_right,
            .chunk_size = call.chunk_size,
            .block_q = call.block_q,
            .block_k = call.block_k,
            .causal = call.causal};
  }

  /// Tiles are asked about without bounds and functors.
  bool is_quick() const { return !needs_bounds(); }
  bool needs_bounds() const { return q_segments.data != nullptr || q_positions.data != nullptr; }
  TESSERA_HD std::int64_t row_steps() const { return (q_len + bounds_step - 1) / bounds_step; }
  TESSERA_HD std::int64_t key_steps() const { return (kv_len + bounds_step - 1) / bounds_step; }

  __device__ __forceinline__ std::int64_t row_position(std::int64_t entry, std::int64_t row) const {
    return q_positions.data == nullptr ? row + first_position : number(q_positions, entry, row);
  }

  /// What a row sees; nothing, if its interval is empty.
  __device__ __forceinline__ row_view view_of(std::int64_t entry, std::int64_t row) const {
    const std::int64_t position = row_position(entry, row);
    row_view view{.first = -far, .last = causal ? position : far};
    if (window_left != far) view.first = position - window_left;
    if (window_right != far) view.last = least(view.last, position + window_right);
    if (chunk_size > 0) {
      std::int64_t chunk = position / chunk_size;
      if (position % chunk_size < 0) --chunk;
      const std::int64_t begin = chunk * chunk_size;
      view.first = view.first > begin ? view.first : begin;
      view.last = least(view.last, begin + chunk_size - 1);
    }
    if (q_segments.data != nullptr) view.segment = number(q_segments, entry, row);
    if (view.segment < 0) view = {.first = 1, .last = 0, .segment = 0};
    return view;
  }

  /// Whether a row whose view is known sees a key.
  __device__ __forceinline__ bool sees(const row_view& view, std::int64_t entry, std::int64_t head,
                                       std::int64_t row, std::int64_t key) const {
    return sees_if(view, entry, head, row, key, [] { return true; });
  }
  __device__ __forceinline__ bool operator()(const position& of) const {
    return sees(view_of(of.batch, of.query), of.batch, of.head, of.query, of.key);
  }
  __device__ prim::tile_visibility classify(const prim::score_tile& tile) const {
    return classify_with(prim::no_mask_functor{}, tile, tile.head_begin, tile.head_end);
  }

  /// Bounds of the 16 keys or rows of a step, from memory.
  __device__ key_bounds look_at_keys(std::int64_t entry, std::int64_t step) const {
    key_bounds bounds;
    for (std::int64_t key = step * bounds_step; key < least((step + 1) * bounds_step, kv_len);
         ++key) {
      bounds.positions.add(key_position(entry, key));
      bounds.segments.add(key_segment(entry, key));
    }
    return bounds;
  }
  __device__ row_bounds look_at_rows(std::int64_t entry, std::int64_t step) const {
    row_bounds bounds;
    for (std::int64_t row = step * bounds_step; row < least((step + 1) * bounds_step, q_len);
         ++row) {
      const row_view view = view_of(entry, row);
      if (view.first > view.last) {
        bounds.all_see = false;
        continue;
      }
      bounds.first.add(view.first);
      bounds.last.add(view.last);
      bounds.segments.add(view.segment);
    }
    return bounds;
  }

 protected:
  /// The same where `asked()` hides more, whose answer does not count in blocks that are shown as a
  /// whole. The other way round, kernels on the matrix unit spill more registers.
  template <class Asked>
  __device__ __forceinline__ bool sees_if(const row_view& view, std::int64_t entry,
                                          std::int64_t head, std::int64_t row, std::int64_t key,
                                          const Asked& asked) const {
    const std::int64_t position = key_position(entry, key);
    if (position < view.first || position > view.last) return false;
    if (key_segment(entry, key) != view.segment) return false;
    const bool hidden = (mask.data != nullptr && at(mask, entry, head, row, key) == 0) || !asked();
    if (block_mask.data == nullptr) return !hidden;
    const std::uint8_t shown = at(block_mask, entry, head, row / block_q, key / block_k);
    return hidden ? is_whole(shown) : shown != 0;
  }

  /// How much of a tile its rows see, whose heads in the masks are [head_begin, head_end). What the
  /// mask hides is not looked at.
  template <class Mask>
  __device__ __forceinline__ prim::tile_visibility classify_with(const Mask& functor,
                                                                 const prim::score_tile& tile,
                                                                 int head_begin,
                                                                 int head_end) const {
    using enum prim::tile_visibility;
    const row_bounds of_rows = bounds_of_rows(tile.entry, tile.query_begin, tile.query_end);
    const key_bounds of_keys = bounds_of_keys(tile.entry, tile.key_begin, tile.key_end);
    if (of_keys.positions.most < of_rows.first.least ||
        of_keys.positions.least > of_rows.last.most || !of_keys.segments.meets(of_rows.segments)) {
      return skip;
    }
    const bool all = of_rows.all_see && of_keys.positions.least >= of_rows.first.most &&
                     of_keys.positions.most <= of_rows.last.least &&
                     of_keys.segments.is_one_number() && of_rows.segments.is_one_number();
    const prim::tile_visibility of_pairs =
        blocks_of(tile, head_begin, head_end).seen(mask.data != nullptr, functor, tile);
    return of_pairs == full && !all ? partial : of_pairs;
  }

 private:
  static __device__ __forceinline__ std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
  }
  static __device__ __forceinline__ std::int32_t number(const sparse_numbers& of,
                                                        std::int64_t entry, std::int64_t token) {
    return of.data[entry * of.entry + token * of.token];
  }
  static __device__ __forceinline__ std::uint8_t at(const sparse_mask& of, std::int64_t entry,
                                                    std::int64_t head, std::int64_t row,
                                                    std::int64_t column) {
    return of.data[entry * of.entry + head * of.head + row * of.row + column * of.column];
  }
  __device__ __forceinline__ std::int64_t key_position(std::int64_t entry, std::int64_t key) const {
    return kv_positions.data == nullptr ? key : number(kv_positions, entry, key);
  }
  __device__ __forceinline__ std::int32_t key_segment(std::int64_t entry, std::int64_t key) const {
    return kv_segments.data == nullptr ? 0 : number(kv_segments, entry, key);
  }

  /// Positions in order: both ends of the rows' intervals grow with the row.
  __device__ __forceinline__ row_bounds bounds_of_rows(std::int64_t entry, std::int64_t begin,
                                                       std::int64_t end) const {
    row_bounds bounds;
    if (rows == nullptr) {
      for (const std::int64_t row : {begin, end - 1}) {
        const row_view view = view_of(entry, row);
        bounds.first.add(view.first);
        bounds.last.add(view.last);
        bounds.segments.add(view.segment);
      }
      return bounds;
    }
    for (std::int64_t step = begin / bounds_step; step * bounds_step < end; ++step) {
      bounds.add(rows[entry * row_steps() + step]);
    }
    return bounds;
  }
  __device__ __forceinline__ key_bounds bounds_of_keys(std::int64_t entry, std::int64_t begin,
                                                       std::int64_t end) const {
    if (keys == nullptr) return {{begin, end - 1}, {0, 0}};
    key_bounds bounds;
    for (std::int64_t step = begin / bounds_step; step * bounds_step < end; ++step) {
      bounds.add(keys[entry * key_steps() + step]);
    }
    return bounds;
  }
  /// Quotients of 32 bits take a fifth of the time of those of 64.
  static __device__ __forceinline__ std::int64_t block_of(std::int64_t at, std::int64_t size) {
    if ((at | size) >> 32 != 0) return at / size;
    return static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(size);
  }
  __device__ __forceinline__ tile_blocks blocks_of(const prim::score_tile& tile, int head_begin,
                                                   int head_end) const {
    if (block_mask.data == nullptr) return tile_blocks::without_mask();
    tile_blocks blocks;
    if (block_mask.head == 0) head_end = head_begin + 1;
    const std::int64_t first_i = block_of(tile.query_begin, block_q);
    const std::int64_t first_j = block_of(tile.key_begin, block_k);
    for (int head = head_begin; head < head_end; ++head) {
      for (std::int64_t i = first_i; i * block_q < tile.query_end; ++i) {
        for (std::int64_t j = first_j; j * block_k < tile.key_end; ++j) {
          blocks.add(at(block_mask, tile.entry, head, i, j));
        }
      }
    }
    return blocks;
  }
};
static_assert(prim::classifies_tiles<visible_pairs>);

/// The same where a functor hides more. A launch may have every `head_step`-th head of the call,
/// from `first_head` on: masks are those of the launch, the functor knows heads of the call.
template <class Mask>
struct functor_pairs : visible_pairs {
  Mask functor{};
  int first_head = 0, head_step = 1;

  static constexpr bool is_quick() { return false; }

  __device__ __forceinline__ bool sees(const row_view& view, std::int64_t entry, std::int64_t head,
                                       std::int64_t row, std::int64_t key) const {
    return sees_if(view, entry, head, row, key, [&] {
      return functor(position{.batch = entry,
                              .head = head_of_call(static_cast<int>(head)),
                              .query = row,
                              .key = key,
                              .query_position = row_position(entry, row)});
    });
  }
  __device__ __forceinline__ bool operator()(const position& of) const {
    return sees(view_of(of.batch, of.query), of.batch, of.head, of.query, of.key);
  }
  __device__ prim::tile_visibility classify(prim::score_tile tile) const {
    const int begin = tile.head_begin, end = tile.head_end;
    tile.head_begin = head_of_call(begin);
    tile.head_end = head_of_call(end - 1) + 1;
    return classify_with(functor, tile, begin, end);
  }

 private:
  __device__ __forceinline__ int head_of_call(int head) const {
    return first_head + head * head_step;
  }
};

/// Who sees whom where `Mask`, if it is one, hides more.
template <class Mask>
using pairs_of = std::conditional_t<is_functor<Mask>, functor_pairs<Mask>, visible_pairs>;
template <class Mask>
pairs_of<Mask> pairs_with(const blocksparse_kernel_args& call, const Mask& mask) {
  if constexpr (is_functor<Mask>) {
    return {visible_pairs::of(call), mask};
  } else {
    return visible_pairs::of(call);
  }
}

/// Makes the bounds, a thread for each step of rows and then of keys.
template <class Kernel>
__global__ void __launch_bounds__(bounds_threads)
    make_bounds(const visible_pairs pairs, std::int64_t batch, std::int64_t row_steps,
                std::int64_t key_steps) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * bounds_threads;
  for (std::int64_t item = std::int64_t{blockIdx.x} * bounds_threads + threadIdx.x;
       item < batch * (row_steps + key_steps); item += step) {
    const std::int64_t of_keys = item - batch * row_steps;
    if (of_keys < 0) {
      pairs.rows[item] = pairs.look_at_rows(item / row_steps, item % row_steps);
    } else {
      pairs.keys[of_keys] = pairs.look_at_keys(of_keys / key_steps, of_keys % key_steps);
    }
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
