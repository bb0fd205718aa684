// The query rows of one work item, and what both loops ask about them: which query and head a row
// is, which keys it sees, where its tensors lie.
#pragma once

#include <cstdint>

#include <tessera/kernels/flash_attention/scores.hpp>
#include <tessera/kernels/flash_attention/tiles.hpp>
#include <tessera/kernels/flash_attention/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/pack.hpp>

namespace tessera::flash {

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

  row_block(const flash_kernel_args& args, const Hooks& hooks, std::int64_t entry, int kv_head,
            std::int64_t first_row)
      : args_(args),
        hooks_(hooks),
        seq_(prim::sequence_of(args, entry)),
        visible_(prim::row_visibility<shape::config.mask>::of(args, seq_)),
        group_(group_of(args)),
        kv_head_(kv_head),
        first_row_(first_row) {
    const std::int64_t used = seq_.q_len * group_ - first_row;
    rows_ = used < 0 ? 0 : used < shape::block_q ? static_cast<int>(used) : shape::block_q;
  }

  static TESSERA_INLINE int keys_in_tile(std::int64_t key0, std::int64_t end) {
    return end - key0 < shape::block_kv ? static_cast<int>(end - key0) : shape::block_kv;
  }
  TESSERA_INLINE std::int64_t query_of(int r) const { return (first_row_ + r) / group_; }
  TESSERA_INLINE int head_of(int r) const {
    return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_);
  }
  TESSERA_INLINE prim::key_interval keys_of(int r) const { return visible_.keys_of(query_of(r)); }

  /// The smallest interval that holds the keys of all rows; see row_visibility::keys_of.
  TESSERA_INLINE prim::key_interval keys_of_all() const {
    return {keys_of(0).begin, keys_of(rows_ - 1).end};
  }

  /// What masks, segments and functors leave of keys [key0, key0 + count).
  prim::tile_visibility visibility_of(std::int64_t key0, int count) const {
    return classify<Row>(args_, hooks_,
                         {seq_.index, kv_head_ * group_, (kv_head_ + 1) * group_, query_of(0),
                          query_of(rows_ - 1) + 1, key0, key0 + count});
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
    prim::pack_query<isa_type, words>(
        token_row<const element>(args_.q, args_.q_strides, seq_.index, seq_.q_begin + query_of(r),
                                 head_of(r)),
        shape::head_dim(args_), words_of_row);
  }

  /// Row r against keys [key0, key0 + count), columns [low, high) of which are in use.
  row_of_scores scores_of(int r, float* scores, std::int64_t key0, int count, int low,
                          int high) const {
    row_of_scores row;
    row.scores = scores;
    row.at = {seq_.index, head_of(r), query_of(r), 0, query_of(r) + visible_.offset};
    row.key0 = key0;
    row.columns = count;
    row.low = low;
    row.high = high;
    const prim::key_interval keys =
        prim::intersection(keys_of(r), {key0 + low, key0 + (high < count ? high : count)});
    row.begin = keys.empty() ? high : static_cast<int>(keys.begin - key0);
    row.end = keys.empty() ? high : static_cast<int>(keys.end - key0);
    return row;
  }

  const flash_kernel_args& args_;
  const Hooks& hooks_;
  prim::sequence seq_;
  prim::row_visibility<shape::config.mask> visible_;
  int group_;
  int kv_head_;
  std::int64_t first_row_;
  int rows_ = 0;  ///< that the sequence uses
};

}  // namespace tessera::flash
