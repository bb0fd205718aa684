// The query rows of a work item: tokens of a sequence times the heads that share keys. Folded row r
// is head r % group of token r / group, counted from the sequence's first.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Keys of a list, ascending.
struct listed_keys {
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;

  /// Those in [first, first + count).
  listed_keys within(std::int64_t first, std::int64_t count) const {
    const std::int32_t* const from = std::lower_bound(begin, end, first);
    return {from, std::lower_bound(from, end, first + count)};
  }
};

/// One token and head.
struct query_row {
  std::int64_t token = 0;  ///< of the sequence
  std::int64_t head = 0;
};

/// Folded rows [first, first + count) of the heads that read key/value head `kv_head`.
template <class Kernel>
class query_rows {
  using isa_type = typename traits<Kernel>::isa_type;

 public:
  query_rows(const latent_attention_kernel_args& args, const prim::sequence& seq,
             std::int64_t kv_head, std::int64_t first, int count)
      : args_(args),
        seq_(seq),
        group_(args.heads / args.kv_heads),
        head_begin_(kv_head * group_),
        first_(first),
        count_(count),
        seen_{seq.k_len,
              {args.causal, args.window_left, args.window_right, seq.k_len - seq.q_len}} {}

  int count() const { return count_; }
  const prim::sequence& sequence() const { return seq_; }
  query_row row(int r) const {
    const std::int64_t folded = first_ + r;
    return {folded / group_, head_begin_ + folded % group_};
  }
  /// Keys that lengths, diagonal and window leave visible to a row, and to some row.
  prim::key_interval keys_of(int r) const { return seen_.keys_of(row(r).token); }
  prim::key_interval keys_of_some() const {
    return count_ == 0 ? prim::key_interval{}
                       : seen_.keys_of(row(0).token, row(count_ - 1).token).some;
  }

  /// Keys of a row's list, of a launch that has lists.
  listed_keys listed(int r) const {
    const key_lists& lists = args_.lists;
    const std::int64_t number = seq_.index * args_.length + row(r).token;
    const std::int32_t* const keys = lists.keys + number * lists.slots;
    return {keys, keys + lists.counts[number]};
  }
  /// Whether no row has a key of these in its list; false where there are no lists.
  bool lists_none_of(std::int64_t key0, int count) const {
    if (args_.lists.keys == nullptr) return false;
    for (int r = 0; r < count_; ++r) {
      const listed_keys found = listed(r).within(key0, count);
      if (found.begin != found.end) return false;
    }
    return true;
  }

  /// Element offset of a row of `rows`, which has one for each token and head.
  std::int64_t at(const latent_rows& rows, int r) const {
    const query_row of = row(r);
    return rows.at(seq_.index, seq_.q_begin + of.token, of.head);
  }
  float* at(const row_statistics& statistics, int r) const {
    const query_row of = row(r);
    return statistics.data + seq_.index * statistics.batch + of.head * statistics.head +
           (seq_.q_begin + of.token) * statistics.row;
  }
  /// A row of a tensor of scores, at key `key`.
  std::int64_t at(const score_tensor& scores, int r, std::int64_t key) const {
    const query_row of = row(r);
    return seq_.index * scores.batch + of.head * scores.head + of.token * scores.row +
           key * scores.column;
  }

  /// The query of a row as floats, its rope part behind the other; `to` has room for whole
  /// registers of both.
  void load_query(int r, float* to) const {
    prim::load_row<isa_type>(args_.q, at(args_.q, r), args_.nope, to);
    if (args_.rope > 0) {
      prim::load_row<isa_type>(args_.q_pe, at(args_.q_pe, r), args_.rope, to + args_.nope);
    }
  }

 private:
  const latent_attention_kernel_args& args_;
  prim::sequence seq_;
  std::int64_t group_;
  std::int64_t head_begin_;
  std::int64_t first_;
  int count_;
  prim::row_visibility<mask_mode::window> seen_;
};

}  // namespace tessera::kernels::latent_attention::cpu
