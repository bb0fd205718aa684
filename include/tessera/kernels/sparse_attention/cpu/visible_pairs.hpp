// Who sees whom in blocksparse attention. Causality, window and chunks are together an interval of
// positions for each row; segments, the mask, the mask of blocks and a functor hide more. A tile of
// keys is left out, or looked at pair by pair, by what bounds of its positions and segments say.
// The class is what the any-type rows ask, and a mask functor of the dense kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/attention/cpu/mask_hooks.hpp>
#include <tessera/kernels/sparse_attention/common/tile_blocks.hpp>
#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Bounds of some numbers; of none, `least` is above `most`.
template <class Number>
struct number_bounds {
  Number least = std::numeric_limits<Number>::max();
  Number most = std::numeric_limits<Number>::min();

  TESSERA_INLINE void add(const number_bounds& other) {
    least = std::min(least, other.least);
    most = std::max(most, other.most);
  }
  TESSERA_INLINE void add(Number number) { add(number_bounds{number, number}); }
  TESSERA_INLINE bool meets(const number_bounds& other) const {
    return least <= other.most && other.least <= most;
  }
  TESSERA_INLINE bool is_one_number() const { return least == most; }
};

/// Of keys.
struct key_bounds {
  number_bounds<std::int64_t> positions{};
  number_bounds<std::int32_t> segments{};
  TESSERA_INLINE void add(const key_bounds& other) {
    positions.add(other.positions);
    segments.add(other.segments);
  }
};

/// Of the rows that see anything: both ends of their intervals of positions.
struct row_bounds {
  number_bounds<std::int64_t> first{}, last{};
  number_bounds<std::int32_t> segments{};
  bool all_see = true;  ///< no row has an empty interval
  TESSERA_INLINE void add(const row_bounds& other) {
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

/// Which pairs of a launch see each other. Where positions or segments lie in memory, bounds of
/// each few rows and keys are made first. A launch may have every `head_step`-th head of a call,
/// from `first_head` on: masks are those of the launch, the functor knows heads of the call.
template <class Isa, class Mask>
class visible_pairs {
  using args_type = blocksparse_kernel_args;
  static constexpr std::int64_t bounds_step = 16;  ///< rows or keys whose bounds are known together

 public:
  visible_pairs(const args_type& args, const Mask& mask, prim::float_carver& memory,
                int first_head = 0, int head_step = 1)
      : args_(args),
        functor_(mask),
        first_head_(first_head),
        head_step_(head_step),
        has_bounds_(args.q_segments.data != nullptr || args.kv_segments.data != nullptr ||
                    args.q_positions.data != nullptr),
        has_intervals_(has_bounds_ || args.causal || args.window_left != args_type::far ||
                       args.window_right != args_type::far || args.chunk_size > 0),
        keys_(memory.take<key_bounds>(has_bounds_ ? args.batch * key_steps() : 0)),
        rows_(memory.take<row_bounds>(has_bounds_ ? args.batch * row_steps() : 0)) {}

  /// Of the rows for any type.
  std::int64_t tiles() const { return (args_.kv_len + block_keys - 1) / block_keys; }
  std::int64_t blocks() const { return (args_.q_len + block_rows - 1) / block_rows; }

  /// Makes the bounds.
  void prepare(int threads) const {
    if (!has_bounds_) return;
    prim::parallel_items<Isa>(args_.batch * key_steps(), threads, [&](std::int64_t item, int) {
      keys_[item] = look_at_keys(item / key_steps(), item % key_steps() * bounds_step);
    });
    prim::parallel_items<Isa>(args_.batch * row_steps(), threads, [&](std::int64_t item, int) {
      rows_[item] = look_at_rows(item / row_steps(), item % row_steps() * bounds_step);
    });
  }

  /// How much of a tile its rows see. What the mask hides is not looked at.
  prim::tile_visibility classify(const prim::score_tile& tile) const {
    using enum prim::tile_visibility;
    bool all = true;
    if (has_intervals_) {
      const row_bounds rows = bounds_of_rows(tile);
      const key_bounds keys = bounds_of_keys(tile);
      if (keys.positions.most < rows.first.least || keys.positions.least > rows.last.most ||
          !keys.segments.meets(rows.segments)) {
        return skip;
      }
      all = rows.all_see && keys.positions.least >= rows.first.most &&
            keys.positions.most <= rows.last.least && keys.segments.is_one_number() &&
            rows.segments.is_one_number();
    }
    prim::score_tile asked = tile;
    asked.head_begin = head_of_call(tile.head_begin);
    asked.head_end = head_of_call(tile.head_end - 1) + 1;
    const prim::tile_visibility of_pairs =
        blocks_of(tile).seen(args_.mask.data != nullptr, functor_, asked);
    return of_pairs == full && !all ? partial : of_pairs;
  }
  /// The same of a tile of the rows for any type.
  prim::tile_visibility of_tile(std::int64_t entry, std::int64_t head, std::int64_t block,
                                std::int64_t tile) const {
    const std::int64_t row = block * block_rows, key = tile * block_keys;
    return classify({.entry = entry,
                     .head_begin = static_cast<int>(head),
                     .head_end = static_cast<int>(head) + 1,
                     .query_begin = row,
                     .query_end = std::min(row + block_rows, args_.q_len),
                     .key_begin = key,
                     .key_end = std::min(key + block_keys, args_.kv_len)});
  }

  /// The first keys of a tile, one behind the other, that some of its rows see, and how much of
  /// them: blocks, or what bounds are known of. `skip`: there are none.
  attention::cpu::key_run first_run(const prim::score_tile& tile) const {
    using enum prim::tile_visibility;
    attention::cpu::key_run run;
    prim::score_tile piece = tile;
    for (std::int64_t key = tile.key_begin; key < tile.key_end; key = piece.key_end) {
      piece.key_begin = key;
      piece.key_end = std::min(piece_end(key), tile.key_end);
      const prim::tile_visibility seen = classify(piece);
      if (seen == skip && run.seen != skip) break;
      if (seen == skip) continue;
      if (run.seen == skip) run = {{key, key}, seen};
      run.keys.end = piece.key_end;
      if (seen != run.seen) run.seen = partial;
    }
    return run;
  }

  /// Rows that see the same runs of keys, from multiples of it on; 0: none are known. Where rows of
  /// a block may differ in their runs, a tile that begins elsewhere, as a work item's first does,
  /// would have others.
  std::int64_t rows_of_block() const {
    if (args_.block_mask.data == nullptr || has_bounds_) return 0;
    return prim::classifies_tiles<Mask> ? 0 : std::min(args_.block_q, args_.q_len);
  }

  /// Hides the keys of columns [begin, end) that the row of `at` does not see. Column c is key
  /// key0 + c.
  void hide_row(const position& at, std::int64_t key0, int begin, int end, float* scores) const {
    if (has_intervals_) hide_by_view(at, key0, begin, end, scores);
    const bool asks = is_functor<Mask> || args_.mask.data != nullptr;
    if (args_.block_mask.data == nullptr) {
      if (asks) ask(at, key0, begin, end, scores);
      return;
    }
    const std::uint8_t* const blocks =
        blocks_of_row(at.batch, at.head, quotient(at.query, args_.block_q));
    std::int64_t block = quotient(key0 + begin, args_.block_k);
    for (int c = begin; c < end; ++block) {
      const auto next = static_cast<int>(
          std::min<std::int64_t>((block + 1) * args_.block_k - key0, std::int64_t{end}));
      const std::uint8_t shown = blocks[block * args_.block_mask.column];
      if (shown == 0) {
        std::fill(scores + c, scores + next, prim::minus_infinity);
      } else if (asks && !is_whole(shown)) {
        ask(at, key0, c, next, scores);
      }
      c = next;
    }
  }
  /// The same of all rows of a tile of the rows for any type.
  void hide(std::int64_t entry, std::int64_t head, std::int64_t block, std::int64_t tile,
            const score_block<Isa>& scores) const {
    for (int r = 0; r < scores.rows; ++r) {
      const position at{
          .batch = entry, .head = static_cast<int>(head), .query = block * block_rows + r};
      hide_row(at, tile * block_keys, 0, scores.keys, scores.score_row(r));
      scores.hide_outside(r, 0, scores.keys);
    }
  }

 private:
  std::int64_t key_steps() const { return (args_.kv_len + bounds_step - 1) / bounds_step; }
  std::int64_t row_steps() const { return (args_.q_len + bounds_step - 1) / bounds_step; }
  int head_of_call(int head) const { return first_head_ + head * head_step_; }

  /// Quotients of 32 bits take a part of the time of those of 64.
  static TESSERA_INLINE std::int64_t quotient(std::int64_t at, std::int64_t size) {
    if ((at | size) >> 32 != 0) return at / size;
    return static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(size);
  }
  /// Keys from `key` on that are looked at together.
  std::int64_t piece_end(std::int64_t key) const {
    std::int64_t end = args_.kv_len;
    if (args_.block_mask.data != nullptr) {
      end = (quotient(key, args_.block_k) + 1) * args_.block_k;
    }
    if (has_intervals_) end = std::min<std::int64_t>(end, (key / block_keys + 1) * block_keys);
    return end;
  }

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

  key_bounds look_at_keys(std::int64_t entry, std::int64_t first) const {
    key_bounds bounds;
    for (std::int64_t key = first; key < std::min(first + bounds_step, args_.kv_len); ++key) {
      bounds.positions.add(key_position(entry, key));
      bounds.segments.add(key_segment(entry, key));
    }
    return bounds;
  }
  row_bounds look_at_rows(std::int64_t entry, std::int64_t first) const {
    row_bounds bounds;
    for (std::int64_t row = first; row < std::min(first + bounds_step, args_.q_len); ++row) {
      add_row(entry, row, bounds);
    }
    return bounds;
  }
  void add_row(std::int64_t entry, std::int64_t row, row_bounds& bounds) const {
    const row_view view = view_of(entry, row);
    if (view.first > view.last) {
      bounds.all_see = false;
      return;
    }
    bounds.first.add(view.first);
    bounds.last.add(view.last);
    bounds.segments.add(view.segment);
  }

  /// Positions in order: both ends of the rows' intervals grow with the row.
  row_bounds bounds_of_rows(const prim::score_tile& tile) const {
    row_bounds bounds;
    if (!has_bounds_) {
      add_row(tile.entry, tile.query_begin, bounds);
      add_row(tile.entry, tile.query_end - 1, bounds);
      return bounds;
    }
    const row_bounds* const rows = rows_ + tile.entry * row_steps();
    for (std::int64_t s = tile.query_begin / bounds_step; s * bounds_step < tile.query_end; ++s) {
      bounds.add(rows[s]);
    }
    return bounds;
  }
  key_bounds bounds_of_keys(const prim::score_tile& tile) const {
    if (!has_bounds_) return {{tile.key_begin, tile.key_end - 1}, {0, 0}};
    key_bounds bounds;
    const key_bounds* const keys = keys_ + tile.entry * key_steps();
    for (std::int64_t s = tile.key_begin / bounds_step; s * bounds_step < tile.key_end; ++s) {
      bounds.add(keys[s]);
    }
    return bounds;
  }

  const std::uint8_t* blocks_of_row(std::int64_t entry, std::int64_t head,
                                    std::int64_t block_row) const {
    const sparse_mask& mask = args_.block_mask;
    return mask.data + entry * mask.entry + head * mask.head + block_row * mask.row;
  }
  tile_blocks blocks_of(const prim::score_tile& tile) const {
    if (args_.block_mask.data == nullptr) return tile_blocks::without_mask();
    tile_blocks blocks;
    const int head_end = args_.block_mask.head == 0 ? tile.head_begin + 1 : tile.head_end;
    const std::int64_t first_row = quotient(tile.query_begin, args_.block_q);
    const std::int64_t first_column = quotient(tile.key_begin, args_.block_k);
    for (int head = tile.head_begin; head < head_end; ++head) {
      for (std::int64_t i = first_row; i * args_.block_q < tile.query_end; ++i) {
        const std::uint8_t* const shown = blocks_of_row(tile.entry, head, i);
        for (std::int64_t j = first_column; j * args_.block_k < tile.key_end; ++j) {
          blocks.add(shown[j * args_.block_mask.column]);
        }
      }
    }
    return blocks;
  }

  /// Positions and segments.
  void hide_by_view(const position& at, std::int64_t key0, int begin, int end,
                    float* scores) const {
    const row_view view = view_of(at.batch, at.query);
    for (int c = begin; c < end; ++c) {
      const std::int64_t position = key_position(at.batch, key0 + c);
      const bool seen = (position >= view.first) & (position <= view.last) &
                        (key_segment(at.batch, key0 + c) == view.segment);
      scores[c] = seen ? scores[c] : prim::minus_infinity;
    }
  }
  /// The mask, and the functor about what nothing else hides.
  void ask(const position& at, std::int64_t key0, int begin, int end, float* scores) const {
    if (const sparse_mask& mask = args_.mask; mask.data != nullptr) {
      const std::uint8_t* const shown = mask.data + at.batch * mask.entry + at.head * mask.head +
                                        at.query * mask.row + key0 * mask.column;
      for (int c = begin; c < end; ++c) {
        scores[c] = shown[c * mask.column] != 0 ? scores[c] : prim::minus_infinity;
      }
    }
    if constexpr (is_functor<Mask>) {
      position asked{.batch = at.batch,
                     .head = head_of_call(at.head),
                     .query = at.query,
                     .query_position = row_position(at.batch, at.query)};
      for (int c = begin; c < end; ++c) {
        if (scores[c] == prim::minus_infinity) continue;
        asked.key = key0 + c;
        if (!functor_(asked)) scores[c] = prim::minus_infinity;
      }
    }
  }

  const args_type& args_;
  const Mask& functor_;
  int first_head_, head_step_;
  bool has_bounds_, has_intervals_;
  key_bounds* keys_;
  row_bounds* rows_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
