// The query rows of one work item, and what both loops ask about them: which query and head a row
// is, which keys it sees, where its tensors lie.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/cpu/scores.hpp>
#include <tessera/kernels/attention/cpu/tiles.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/pack.hpp>

namespace tessera::kernels::attention::cpu {

/// Rows [first_row, first_row + rows) of the folded axis of one batch entry (or sequence) and
/// key/value head: row r is query r / group of head r % group of the head's group.
template <class Row, class Hooks>
class row_block {
 protected:
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using element = typename shape::element;
  using modifiers = score_modifiers<Row, Hooks>;

  row_block(const attention_kernel_args& args, const Hooks& hooks, std::int64_t entry, int kv_head,
            std::int64_t first_row, int most_rows)
      : args_(args),
        hooks_(hooks),
        seq_(prim::sequence_of(args, entry)),
        visible_(prim::row_visibility<shape::config.mask>::of(args, seq_)),
        units_(score_units<Row, Hooks>::of(args)),
        group_(group_of(args)),
        kv_head_(kv_head),
        first_row_(first_row) {
    const std::int64_t used = seq_.q_len * group_ - first_row;
    rows_ = used < 0 ? 0 : used < most_rows ? static_cast<int>(used) : most_rows;
  }

  TESSERA_INLINE std::int64_t query_of(int r) const { return (first_row_ + r) / group_; }
  TESSERA_INLINE int head_of(int r) const {
    return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_);
  }
  TESSERA_INLINE prim::key_interval keys_of(int r) const { return visible_.keys_of(query_of(r)); }

  /// The smallest interval that holds the keys of all rows, of which there is at least one; see
  /// row_visibility::keys_of.
  TESSERA_INLINE prim::key_interval keys_of_all() const {
    return {keys_of(0).begin, keys_of(rows_ - 1).end};
  }

  /// What masks, segments and functors leave of keys [key0, key0 + count).
  prim::tile_visibility visibility_of(std::int64_t key0, int count) const {
    return classify<Row>(args_, hooks_, score_tile_of(0, rows_, {key0, key0 + count}));
  }

  /// Columns of the keys [key0, key0 + count) that lengths, diagonal and window leave to some of
  /// the rows [first, first + rows).
  TESSERA_INLINE key_columns columns_of(int first, int rows, std::int64_t key0, int count) const {
    const prim::key_interval keys = prim::intersection(
        {keys_of(first).begin, keys_of(first + rows - 1).end}, {key0, key0 + count});
    key_columns columns{key0, count};
    if (keys.empty()) return columns;
    columns.begin = static_cast<int>(keys.begin - key0);
    columns.end = static_cast<int>(keys.end - key0);
    return columns;
  }

  /// What masks, segments and functors leave of `columns` to rows [first, first + rows); takes
  /// columns of foreign segments off both ends.
  prim::tile_visibility narrow(int first, int rows, key_columns* columns) const {
    const std::int64_t key0 = columns->key0;
    const prim::score_tile tile =
        score_tile_of(first, rows, {key0 + columns->begin, key0 + columns->end});
    if constexpr (modifiers::segments) {
      if (args_.q_segments.data != nullptr) {
        const prim::key_interval keys = own_segments<isa_type>(args_, tile);
        columns->begin = static_cast<int>(keys.begin - key0);
        columns->end = static_cast<int>(keys.end - key0);
        if (keys.empty()) return prim::tile_visibility::skip;
        return classify<Row>(args_, hooks_, score_tile_of(first, rows, keys));
      }
    }
    return classify<Row>(args_, hooks_, tile);
  }

  /// True if every row sees every one of these keys, so that no value needs to be kept out.
  bool all_see(prim::tile_visibility seen, std::int64_t key0, int count) const {
    return seen == prim::tile_visibility::full && keys_of(0).end >= key0 + count &&
           keys_of(rows_ - 1).begin <= key0 && !modifiers::may_hide(args_);
  }

  /// Rows of k or v from key `key0` of the sequence on.
  prim::row_source<element> rows_from(const void* data, const row_strides& strides,
                                      std::int64_t key0) const {
    return {token_row<const element>(data, strides, seq_.index, seq_.k_begin + key0, kv_head_),
            strides.row};
  }

  TESSERA_INLINE void load_query(int r, float* words_of_row) const {
    prim::pack_query<isa_type, words>(query(r), shape::head_dim(args_), words_of_row);
  }
  TESSERA_INLINE const element* query(int r) const {
    return token_row<const element>(args_.q, args_.q_strides, seq_.index,
                                    seq_.q_begin + query_of(r), head_of(r));
  }
  TESSERA_INLINE const element* output(int r) const {
    return token_row<const element>(args_.out, args_.out_strides, seq_.index,
                                    seq_.q_begin + query_of(r), head_of(r));
  }

  TESSERA_INLINE position position_of(int r) const {
    return {seq_.index, head_of(r), query_of(r), 0, query_of(r) + visible_.offset};
  }

  /// Row r against the columns.
  row_of_scores scores_of(int r, float* scores, const key_columns& columns) const {
    const std::int64_t key0 = columns.key0;
    const prim::key_interval keys =
        prim::intersection(keys_of(r), {key0 + columns.begin, key0 + columns.end});
    row_of_scores row{scores, position_of(r), key0, columns.count, columns.low, columns.high};
    row.begin = keys.empty() ? columns.high : static_cast<int>(keys.begin - key0);
    row.end = keys.empty() ? columns.high : static_cast<int>(keys.end - key0);
    return row;
  }

  prim::score_tile score_tile_of(int first, int rows, prim::key_interval keys) const {
    return {seq_.index,
            kv_head_ * group_,
            (kv_head_ + 1) * group_,
            query_of(first),
            query_of(first + rows - 1) + 1,
            keys.begin,
            keys.end};
  }

  const attention_kernel_args& args_;
  const Hooks& hooks_;
  prim::sequence seq_;
  prim::row_visibility<shape::config.mask> visible_;
  score_units<Row, Hooks> units_;
  int group_;
  int kv_head_;
  std::int64_t first_row_;
  int rows_ = 0;  ///< that the sequence uses
};

}  // namespace tessera::kernels::attention::cpu
