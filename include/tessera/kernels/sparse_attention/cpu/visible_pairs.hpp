// Who sees whom in blocksparse attention. Causality, window and chunks are together an interval of
// positions for each row; segments, the mask and the mask of blocks hide more. A tile of keys is
// left out, or looked at pair by pair, by what bounds of its positions and segments say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
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
template <class Isa>
class visible_pairs {
  using args_type = blocksparse_kernel_args;

 public:
  visible_pairs(const args_type& args, prim::float_carver& memory)
      : args_(args),
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
    const prim::tile_visibility of_blocks = of_block_mask(entry, head, block, tile);
    if (of_blocks == skip) return skip;
    return all && of_blocks == full && args_.mask.data == nullptr ? full : partial;
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
      if (args_.mask.data != nullptr) hide_masked(entry, head, row, tile, scores.keys, hidden);
      if (args_.block_mask.data != nullptr) {
        hide_blocks(entry, head, row, keys, scores.keys, hidden);
      }
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

  /// What a row sees; nothing, if its interval is empty.
  row_view view_of(std::int64_t entry, std::int64_t row) const {
    constexpr std::int64_t far = args_type::far;
    const std::int64_t position = args_.q_positions.data == nullptr
                                      ? row + args_.first_position
                                      : number(args_.q_positions, entry, row);
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

  void hide_masked(std::int64_t entry, std::int64_t head, std::int64_t row, std::int64_t tile,
                   int count, float* hidden) const {
    const sparse_mask& mask = args_.mask;
    const std::uint8_t* const shown = mask.data + entry * mask.entry + head * mask.head +
                                      row * mask.row + tile * block_keys * mask.column;
    for (int c = 0; c < count; ++c) hidden[c] = shown[c * mask.column] != 0 ? hidden[c] : -1.0f;
  }
  const std::uint8_t* blocks_of_row(std::int64_t entry, std::int64_t head,
                                    std::int64_t block_row) const {
    const sparse_mask& mask = args_.block_mask;
    return mask.data + entry * mask.entry + head * mask.head + block_row * mask.row;
  }
  void hide_blocks(std::int64_t entry, std::int64_t head, std::int64_t row, const tile_keys& keys,
                   int count, float* hidden) const {
    const std::uint8_t* const shown = blocks_of_row(entry, head, row / args_.block_q);
    for (int c = 0; c < count; ++c) {
      hidden[c] = shown[keys.block[c] * args_.block_mask.column] != 0 ? hidden[c] : -1.0f;
    }
  }

  prim::tile_visibility of_block_mask(std::int64_t entry, std::int64_t head, std::int64_t block,
                                      std::int64_t tile) const {
    if (args_.block_mask.data == nullptr) return prim::tile_visibility::full;
    const auto last = [](std::int64_t first, std::int64_t count, std::int64_t length) {
      return std::min(first + count, length) - 1;
    };
    const std::int64_t row = block * block_rows, key = tile * block_keys;
    const std::int64_t last_block_row = last(row, block_rows, args_.q_len) / args_.block_q;
    const std::int64_t last_column = last(key, block_keys, args_.kv_len) / args_.block_k;
    bool some = false, all = true;
    for (std::int64_t i = row / args_.block_q; i <= last_block_row; ++i) {
      const std::uint8_t* const shown = blocks_of_row(entry, head, i);
      for (std::int64_t j = key / args_.block_k; j <= last_column; ++j) {
        const bool seen = shown[j * args_.block_mask.column] != 0;
        some |= seen;
        all &= seen;
      }
    }
    return !some ? prim::tile_visibility::skip
           : all ? prim::tile_visibility::full
                 : prim::tile_visibility::partial;
  }

  const args_type& args_;
  std::int64_t tiles_, blocks_;
  key_bounds* keys_;
  row_bounds* rows_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
