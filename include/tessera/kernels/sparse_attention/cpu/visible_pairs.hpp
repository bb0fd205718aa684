// Who sees whom in blocksparse attention. Causality, window and chunks are together an interval of
// positions for each row; segments, the mask, the mask of blocks and a functor hide more. A tile of
// keys is left out, or looked at pair by pair, by what bounds of its positions and segments say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/common/tile_blocks.hpp>
#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Bounds of some numbers; of none, `least` is above `most`.
template <class Number>
struct number_bounds {
  Number least = std::numeric_limits<Number>::max();
  Number most = std::numeric_limits<Number>::min();

  TESSERA_INLINE void add(Number number) {
    least = std::min(least, number);
    most = std::max(most, number);
  }
  TESSERA_INLINE bool meets(const number_bounds& other) const {
    return least <= other.most && other.least <= most;
  }
  TESSERA_INLINE bool is_one_number() const { return least == most; }
};

/// Of the keys of a tile.
struct key_bounds {
  number_bounds<std::int64_t> positions{};
  number_bounds<std::int32_t> segments{};
};

/// Of the rows of a block that see anything: both ends of their intervals of positions.
struct row_bounds {
  number_bounds<std::int64_t> first{}, last{};
  number_bounds<std::int32_t> segments{};
  bool all_see = true;  ///< no row has an empty interval
};

/// Positions [first, last] and the segment that a row sees.
struct row_view {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int32_t segment = 0;
};

/// Which pairs of a launch see each other. Bounds of all blocks and tiles are made first.
template <class Isa, class Mask>
class visible_pairs {
  using args_type = blocksparse_kernel_args;

 public:
  visible_pairs(const args_type& args, const Mask& mask, prim::float_carver& memory)
      : args_(args),
        functor_(mask),
        tiles_((args.kv_len + block_keys - 1) / block_keys),
        blocks_((args.q_len + block_rows - 1) / block_rows),
        keys_(memory.take<key_bounds>(args.batch * tiles_)),
        rows_(memory.take<row_bounds>(args.batch * blocks_)) {}

  std::int64_t tiles() const { return tiles_; }
  std::int64_t blocks() const { return blocks_; }

  /// Makes the bounds.
  void prepare(int threads) const {
    prim::parallel_items<Isa>(args_.batch * tiles_, threads, [&](std::int64_t item, int) {
      keys_[item] = bounds_of_keys(item / tiles_, item % tiles_ * block_keys);
    });
    prim::parallel_items<Isa>(args_.batch * blocks_, threads, [&](std::int64_t item, int) {
      rows_[item] = bounds_of_rows(item / blocks_, item % blocks_ * block_rows);
    });
  }

  /// How much of a tile a block of rows of a head sees. What the mask hides is not looked at.
  prim::tile_visibility of_tile(std::int64_t entry, std::int64_t head, std::int64_t block,
                                std::int64_t tile) const {
    using enum prim::tile_visibility;
    const row_bounds& rows = rows_[entry * blocks_ + block];
    const key_bounds& keys = keys_[entry * tiles_ + tile];
    if (keys.positions.most < rows.first.least || keys.positions.least > rows.last.most ||
        !keys.segments.meets(rows.segments)) {
      return skip;
    }
    const bool all = rows.all_see && keys.positions.least >= rows.first.most &&
                     keys.positions.most <= rows.last.least && keys.segments.is_one_number() &&
                     rows.segments.is_one_number();
    const std::int64_t row = block * block_rows, key = tile * block_keys;
    const prim::score_tile place{.entry = entry,
                                 .head_begin = static_cast<int>(head),
                                 .head_end = static_cast<int>(head) + 1,
                                 .query_begin = row,
                                 .query_end = std::min(row + block_rows, args_.q_len),
                                 .key_begin = key,
                                 .key_end = std::min(key + block_keys, args_.kv_len)};
    const prim::tile_visibility of_pairs =
        blocks_of(place).seen(args_.mask.data != nullptr, functor_, place);
    return of_pairs == full && !all ? partial : of_pairs;
  }

  /// Hides the pairs of a tile, in `scores`, that do not see each other.
  void hide(std::int64_t entry, std::int64_t head, std::int64_t block, std::int64_t tile,
            const score_block<Isa>& scores) const {
    tile_keys keys;
    load(entry, tile * block_keys, scores.keys, keys);
    float hidden[block_keys];
    for (int r = 0; r < scores.rows; ++r) {
      const std::int64_t row = block * block_rows + r;
      const row_view view = view_of(entry, row);
      for (int c = 0; c < block_keys; ++c) {
        const bool seen = (keys.position[c] >= view.first) & (keys.position[c] <= view.last) &
                          (keys.segment[c] == view.segment);
        hidden[c] = seen ? 0.0f : -1.0f;
      }
      if (hides_more()) hide_more(entry, head, row, tile, keys, hidden);
      scores.hide(r, hidden);
    }
  }

 private:
  /// Keys behind the last have a segment that no row has.
  struct tile_keys {
    std::int64_t position[block_keys];
    std::int64_t block[block_keys];  ///< of block_mask
    std::int32_t segment[block_keys];
  };

  static std::int32_t number(const sparse_numbers& of, std::int64_t entry, std::int64_t token) {
    return of.data[entry * of.entry + token * of.token];
  }
  std::int64_t key_position(std::int64_t entry, std::int64_t key) const {
    return args_.kv_positions.data == nullptr ? key : number(args_.kv_positions, entry, key);
  }
  std::int32_t key_segment(std::int64_t entry, std::int64_t key) const {
    return args_.kv_segments.data == nullptr ? 0 : number(args_.kv_segments, entry, key);
  }

  std::int64_t row_position(std::int64_t entry, std::int64_t row) const {
    return args_.q_positions.data == nullptr ? row + args_.first_position
                                             : number(args_.q_positions, entry, row);
  }

  /// What a row sees; nothing, if its interval is empty.
  row_view view_of(std::int64_t entry, std::int64_t row) const {
    constexpr std::int64_t far = args_type::far;
    const std::int64_t position = row_position(entry, row);
    row_view view{.first = -far, .last = args_.causal ? position : far};
    if (args_.window_left != far) view.first = position - args_.window_left;
    if (args_.window_right != far) view.last = std::min(view.last, position + args_.window_right);
    if (args_.chunk_size > 0) {
      std::int64_t chunk = position / args_.chunk_size;
      if (position % args_.chunk_size < 0) --chunk;
      const std::int64_t begin = chunk * args_.chunk_size;
      view.first = std::max(view.first, begin);
      view.last = std::min(view.last, begin + args_.chunk_size - 1);
    }
    if (args_.q_segments.data != nullptr) view.segment = number(args_.q_segments, entry, row);
    if (view.segment < 0) view = {.first = 1, .last = 0, .segment = 0};
    return view;
  }

  key_bounds bounds_of_keys(std::int64_t entry, std::int64_t first) const {
    key_bounds bounds;
    for (std::int64_t key = first; key < std::min(first + block_keys, args_.kv_len); ++key) {
      bounds.positions.add(key_position(entry, key));
      bounds.segments.add(key_segment(entry, key));
    }
    return bounds;
  }
  row_bounds bounds_of_rows(std::int64_t entry, std::int64_t first) const {
    row_bounds bounds;
    for (std::int64_t row = first; row < std::min(first + block_rows, args_.q_len); ++row) {
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

  void load(std::int64_t entry, std::int64_t first, int count, tile_keys& keys) const {
    for (int c = 0; c < block_keys; ++c) {
      const bool present = c < count;
      keys.position[c] = present ? key_position(entry, first + c) : 0;
      keys.segment[c] = present ? key_segment(entry, first + c) : -1;
      keys.block[c] = present ? (first + c) / args_.block_k : 0;
    }
  }

  const std::uint8_t* blocks_of_row(std::int64_t entry, std::int64_t head,
                                    std::int64_t block_row) const {
    const sparse_mask& mask = args_.block_mask;
    return mask.data + entry * mask.entry + head * mask.head + block_row * mask.row;
  }
  /// Elements of block_mask for a row and each key of a tile; of none, they show part.
  void load_blocks(std::int64_t entry, std::int64_t head, std::int64_t row, const tile_keys& keys,
                   std::uint8_t* shown) const {
    std::fill(shown, shown + block_keys, static_cast<std::uint8_t>(block_shown::part));
    if (args_.block_mask.data == nullptr) return;
    const std::uint8_t* const blocks = blocks_of_row(entry, head, row / args_.block_q);
    for (int c = 0; c < block_keys; ++c) {
      shown[c] = blocks[keys.block[c] * args_.block_mask.column];
    }
  }
  /// Something beside positions and segments hides pairs.
  bool hides_more() const {
    return is_functor<Mask> || args_.mask.data != nullptr || args_.block_mask.data != nullptr;
  }
  void hide_more(std::int64_t entry, std::int64_t head, std::int64_t row, std::int64_t tile,
                 const tile_keys& keys, float* hidden) const {
    std::uint8_t shown[block_keys];  // of the blocks that the keys lie in
    load_blocks(entry, head, row, keys, shown);
    if (args_.mask.data != nullptr) hide_masked(entry, head, row, tile, shown, hidden);
    if constexpr (is_functor<Mask>) ask_functor(entry, head, row, tile, shown, hidden);
    for (int c = 0; c < block_keys; ++c) hidden[c] = shown[c] != 0 ? hidden[c] : -1.0f;
  }
  void hide_masked(std::int64_t entry, std::int64_t head, std::int64_t row, std::int64_t tile,
                   const std::uint8_t* of_blocks, float* hidden) const {
    const sparse_mask& mask = args_.mask;
    const std::uint8_t* const shown = mask.data + entry * mask.entry + head * mask.head +
                                      row * mask.row + tile * block_keys * mask.column;
    const auto count = std::min<std::int64_t>(block_keys, args_.kv_len - tile * block_keys);
    for (std::int64_t c = 0; c < count; ++c) {
      const bool seen = (shown[c * mask.column] != 0) | is_whole(of_blocks[c]);
      hidden[c] = seen ? hidden[c] : -1.0f;
    }
  }
  /// About the pairs that nothing else hides.
  void ask_functor(std::int64_t entry, std::int64_t head, std::int64_t row, std::int64_t tile,
                   const std::uint8_t* of_blocks, float* hidden) const {
    position at{.batch = entry,
                .head = static_cast<int>(head),
                .query = row,
                .query_position = row_position(entry, row)};
    for (int c = 0; c < block_keys; ++c) {
      if (hidden[c] != 0.0f || of_blocks[c] == 0 || is_whole(of_blocks[c])) continue;
      at.key = tile * block_keys + c;
      if (!functor_(at)) hidden[c] = -1.0f;
    }
  }

  tile_blocks blocks_of(const prim::score_tile& tile) const {
    if (args_.block_mask.data == nullptr) return tile_blocks::without_mask();
    tile_blocks blocks;
    const std::int64_t last_row = (tile.query_end - 1) / args_.block_q;
    const std::int64_t last_column = (tile.key_end - 1) / args_.block_k;
    for (std::int64_t i = tile.query_begin / args_.block_q; i <= last_row; ++i) {
      const std::uint8_t* const shown = blocks_of_row(tile.entry, tile.head_begin, i);
      for (std::int64_t j = tile.key_begin / args_.block_k; j <= last_column; ++j) {
        blocks.add(shown[j * args_.block_mask.column]);
      }
    }
    return blocks;
  }

  const args_type& args_;
  const Mask& functor_;
  std::int64_t tiles_, blocks_;
  key_bounds* keys_;
  row_bounds* rows_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
