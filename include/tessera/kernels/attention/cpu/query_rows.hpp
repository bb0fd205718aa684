// The query rows of one work item, and what both loops ask about them: which query and head a row
// is, which keys it sees, where its tensors lie.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/cpu/epilogue.hpp>
#include <tessera/kernels/attention/cpu/mask_hooks.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/code_rows.hpp>

namespace tessera::kernels::attention::cpu {

/// Rows [first, first + rows) of an item: those of one register tile.
struct row_tile {
  int first = 0;
  int rows = 0;
  TESSERA_INLINE int end() const { return first + rows; }
};

/// Rows [first_row, first_row + most_rows) of the folded axis of one batch entry (or sequence) and
/// key/value head: row r is query r / group of head r % group of the head's group.
template <class Kernel, class Hooks>
class query_rows {
  using shape = traits<Kernel>;
  using element = typename shape::element;
  using mods = score_mod<Kernel, Hooks>;
  static constexpr bool has_runs = finds_runs<decltype(Hooks::mask)>;
  /// Register tiles of a block of rows that are worth an incomplete one at its end.
  static constexpr std::int64_t least_tiles_of_block = 4;

 public:
  query_rows(const attention_kernel_args& args, const Hooks& hooks, std::int64_t entry, int kv_head,
             std::int64_t first_row, int most_rows)
      : query_rows(args, hooks, sequence_of(args, entry),
                   visibility_of<shape::config.mask>(args, sequence_of(args, entry)), kv_head,
                   first_row, most_rows) {}

  /// Of rows that are those of a sequence `seq`, and see what `visible` says.
  query_rows(const attention_kernel_args& args, const Hooks& hooks, const prim::sequence& seq,
             const prim::row_visibility<shape::config.mask>& visible, int kv_head,
             std::int64_t first_row, int most_rows)
      : args_(args),
        hooks_(hooks),
        seq_(seq),
        visible_(visible),
        units_(mods::units_of(args, scale_of_keys(args, kv_head))),
        group_(group_of(args)),
        kv_head_(kv_head),
        first_row_(first_row),
        most_rows_(most_rows) {
    const std::int64_t used = seq_.q_len * group_ - first_row;
    count_ = used < 0 ? 0 : used < most_rows ? static_cast<int>(used) : most_rows;
  }

  const attention_kernel_args& args() const { return args_; }
  const Hooks& hooks() const { return hooks_; }
  const prim::sequence& sequence() const { return seq_; }
  const score_units& units() const { return units_; }
  int kv_head() const { return kv_head_; }
  int count() const { return count_; }  ///< rows that the sequence uses

  /// The rows in register tiles; no rows behind the last.
  TESSERA_INLINE row_tile first_tile() const { return tile_from(0); }
  TESSERA_INLINE row_tile tile_after(row_tile rows) const { return tile_from(rows.end()); }

  TESSERA_INLINE std::int64_t query_of(int r) const { return (first_row_ + r) / group_; }
  TESSERA_INLINE int head_of(int r) const {
    return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_);
  }
  TESSERA_INLINE position position_of(int r) const {
    return {seq_.index, head_of(r), query_of(r), 0, query_of(r) + visible_.mask.offset};
  }
  TESSERA_INLINE const element* query(int r) const {
    return token_row<const element>(args_.q, args_.q_strides, seq_.index,
                                    seq_.q_begin + query_of(r), head_of(r));
  }
  /// The same as the products take it; `room` is for one that is divided first.
  TESSERA_INLINE const element* operand(int r, element (&room)[max_head_dim]) const {
    const element* const q = query(r);
    if constexpr (shape::config.keys == key_storage::paged) {
      if (args_.q_divisor == 1.0f && !args_.q_as_codes) return q;
      for (int d = 0; d < shape::head_dim(args_); ++d) {
        const float x = divided<element>(static_cast<float>(q[d]), args_.q_divisor);
        room[d] = element(args_.q_as_codes
                              ? prim::nearest_of_codes<typename shape::isa_type>(args_.pool_type, x)
                              : x);
      }
      return room;
    }
    return q;
  }
  TESSERA_INLINE const element* output(int r) const {
    return token_row<const element>(args_.out, args_.out_strides, seq_.index,
                                    seq_.q_begin + query_of(r), head_of(r));
  }

  /// Keys that some and that all of these rows see, as far as lengths, diagonal and window go.
  TESSERA_INLINE prim::block_intervals keys_of(row_tile rows) const {
    return visible_.keys_of(query_of(rows.first), query_of(rows.end() - 1));
  }
  /// There is at least one row.
  TESSERA_INLINE prim::block_intervals keys_of_all() const { return keys_of({0, count_}); }

  /// The tiles of keys that the rows, of which there is at least one, visit.
  key_tiles<Kernel, Hooks> tiles() const {
    return {args_,      hooks_,         scores_of({0, count_}, {}), keys_of_all().some,
            seq_.k_len, shape::block_kv};
  }

  /// What masks, segments and functors leave of the keys.
  prim::tile_visibility visibility_of_keys(prim::key_interval keys) const {
    return classify<Kernel>(args_, hooks_, scores_of({0, count_}, keys));
  }

  /// True if every row sees every one of these keys, of which masks and functors leave `seen`, and
  /// drops none, so that no value needs to be kept out.
  bool all_see(prim::key_interval keys, prim::tile_visibility seen) const {
    return seen == prim::tile_visibility::full && keys_of_all().all.contains(keys) &&
           !mods::may_hide(args_) && !drops();
  }

  /// True if row r has use for the value of a key, whatever its weight: a weight of 0 may be that
  /// of a hidden or dropped key, or one too small for a float, which the value may make NaN.
  bool uses(int r, std::int64_t key) const {
    float score[shape::width] = {};
    const score_row row = scores_of_row(r, score, {key, 1, 0, 1, 0, shape::width});
    if (row.begin != 0) return false;
    mods::apply(args_, hooks_, units_, row, true);
    if (score[0] == prim::minus_infinity) return false;
    return !drops() || prim::dropout_keeps(args_.dropout_seed, args_.dropout_threshold,
                                           row.at.batch, row.at.head, row.at.query, key);
  }

  /// The columns of a tile of keys that some of the rows see; where the mask functor knows of
  /// holes, the first of them.
  key_columns columns_of(row_tile rows, const key_tile& tile) const {
    return columns_in(rows, tile, tile.keys());
  }
  /// The columns behind `before`, the last ones, that some of the rows see.
  key_columns columns_after(row_tile rows, const key_tile& tile, const key_columns& before) const {
    if constexpr (has_runs) {
      if (tile.seen != prim::tile_visibility::full) {
        return columns_in(rows, tile, {before.key0 + before.end, tile.key0 + tile.count});
      }
    }
    return {};
  }

  /// The same of keys `from` of a tile alone.
  key_columns columns_in(row_tile rows, const key_tile& tile, prim::key_interval from) const {
    const prim::key_interval keys = prim::intersection(keys_of(rows).some, from);
    key_columns columns{tile.key0, tile.count};
    if (keys.empty()) return columns;
    columns.begin = static_cast<int>(keys.begin - tile.key0);
    columns.end = static_cast<int>(keys.end - tile.key0);
    columns.seen = tile.seen;
    if (tile.seen == prim::tile_visibility::partial) narrow(rows, keys, &columns);
    columns.low = columns.begin / shape::key_step * shape::key_step;
    columns.high = round_up(columns.end, shape::key_step);
    return columns;
  }

  /// Row r against the columns.
  score_row scores_of_row(int r, float* scores, const key_columns& columns) const {
    const std::int64_t key0 = columns.key0;
    const prim::key_interval keys = prim::intersection(visible_.keys_of(query_of(r)),
                                                       {key0 + columns.begin, key0 + columns.end});
    score_row row{scores, position_of(r), key0, columns.count, columns.low, columns.high};
    row.begin = keys.empty() ? columns.high : static_cast<int>(keys.begin - key0);
    row.end = keys.empty() ? columns.high : static_cast<int>(keys.end - key0);
    return row;
  }

  /// The end of row r's softmax, sinks included.
  prim::softmax_result result_of(int r, const prim::softmax_state& state) const {
    return prim::finish_row(units_.natural(state),
                            args_.sinks + head_of(r) * args_.sink_head_stride, args_.sink_count,
                            args_.sink_stride, args_.normalize);
  }

  /// Writes row r; see store_row.
  void store(int r, const prim::softmax_result& result, const float* accumulator) const {
    store_row<Kernel>(args_, seq_, query_of(r), head_of(r), result, accumulator);
  }
  /// Writes zeros to the rows that the sequence does not use.
  void store_unused() const {
    const bool packed = args_.cu_seqlens_q != nullptr;
    const std::int64_t all = (packed ? seq_.q_len : args_.q_len) * group_ - first_row_;
    for (int r = count_; r < most_rows_ && r < all; ++r) store(r, {}, nullptr);
  }

 private:
  TESSERA_INLINE bool drops() const {
    return shape::has(attention_feature::dropout) && args_.dropout;
  }
  static TESSERA_INLINE float scale_of_keys(const attention_kernel_args& args, int kv_head) {
    float scale = args.softmax_scale;
    if constexpr (shape::scales_heads) {
      if (args.q_scales != nullptr) scale *= args.q_scales[kv_head];
      if (args.k_scales != nullptr) scale *= args.k_scales[kv_head];
    }
    return scale;
  }

  TESSERA_INLINE row_tile tile_from(int first) const {
    if (first >= count_) return {first, 0};
    int left = count_ - first;
    if constexpr (cuts_rows<decltype(Hooks::mask)>) {
      const std::int64_t rows = hooks_.mask.rows_of_block() * group_;
      // Products of tiles write whole ones: rows behind an incomplete one would be others'.
      const bool splits = shape::tiles && rows % prim::tile_rows != 0;
      if (rows >= least_tiles_of_block * shape::mr && !splits) {
        const std::int64_t to_end = rows - (first_row_ + first) % rows;
        left = to_end < left ? static_cast<int>(to_end) : left;
      }
    }
    if constexpr (shape::tiles) return {first, left < shape::mr ? left : shape::mr};
    return {first, prim::rows_of_tile<shape::mr>(left)};
  }

  /// Asks masks, segments and functors again, for these rows alone, and takes columns of foreign
  /// segments off both ends, or all behind the first run.
  void narrow(row_tile rows, prim::key_interval keys, key_columns* columns) const {
    prim::score_tile scores = scores_of(rows, keys);
    if constexpr (has_runs) {
      static_assert(!mods::masks && !mods::segments && !mods::weights);
      const key_run run = hooks_.mask.first_run(scores);
      columns->begin = static_cast<int>(run.keys.begin - columns->key0);
      columns->end = static_cast<int>(run.keys.end - columns->key0);
      columns->seen = run.seen;
      return;
    }
    if constexpr (mods::segments) {
      if (args_.q_segments.data != nullptr) {
        keys = own_segments<Kernel>(args_, scores);
        columns->begin = static_cast<int>(keys.begin - columns->key0);
        columns->end = static_cast<int>(keys.end - columns->key0);
        scores = scores_of(rows, keys);
      }
    }
    columns->seen =
        keys.empty() ? prim::tile_visibility::skip : classify<Kernel>(args_, hooks_, scores);
  }

  prim::score_tile scores_of(row_tile rows, prim::key_interval keys) const {
    return {seq_.index,
            kv_head_ * group_,
            (kv_head_ + 1) * group_,
            query_of(rows.first),
            query_of(rows.end() - 1) + 1,
            keys.begin,
            keys.end};
  }

  const attention_kernel_args& args_;
  const Hooks& hooks_;
  prim::sequence seq_;
  prim::row_visibility<shape::config.mask> visible_;
  score_units units_;
  int group_;
  int kv_head_;
  std::int64_t first_row_;
  int most_rows_;
  int count_ = 0;
};

}  // namespace tessera::kernels::attention::cpu
