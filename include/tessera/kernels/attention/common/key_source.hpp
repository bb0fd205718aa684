// Where key j and value j of a sequence lie. Packing (prefill) and decode take the source as a
// parameter; README.md says what a source must have.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>

namespace tessera::kernels::attention {

/// The tokens of one tensor, of all heads: token j of head h lies at row(j, h), head h + 1 is
/// head_stride() elements on. From token j on `contiguous_run(j)` tokens are stride() elements
/// apart, however many follow elsewhere. Numbered from j on, through all runs, places(j, h) are the
/// tokens where they lie and rows(j, h) those that loops read, of type `element`. They are the same
/// where loops read tokens in place. Elsewhere load(j, begin, end, h) makes a few of them at once.
/// Those in pages say besides which page_of(j) is, a place of the table, and where page_row(page,
/// h) begins.
template <class Tokens>
concept token_rows = requires(const Tokens& tokens, std::int64_t j, int n) {
  typename Tokens::element;
  typename Tokens::stored;
  { tokens.row(j, n) } -> std::same_as<const typename Tokens::stored*>;
  { tokens.places(j, n).row(j) } -> std::same_as<const typename Tokens::stored*>;
  { tokens.rows(j, n).row(j) } -> std::same_as<const typename Tokens::element*>;
  { tokens.load(j, n, n, n).row(j) } -> std::same_as<const typename Tokens::element*>;
  { tokens.contiguous_run(j) } -> std::same_as<std::int64_t>;
  { tokens.stride() } -> std::same_as<std::int64_t>;
  { tokens.head_stride() } -> std::same_as<std::int64_t>;
};
/// And run_rows(j, h, distance) takes every distance-th of a run. Where tokens are not in one run,
/// find(j, count, h, to) says where a few of them lie.
template <class Tokens>
concept token_rows_in_place = token_rows<Tokens> && Tokens::in_place &&
    requires(const Tokens& tokens, std::int64_t j) {
  { tokens.run_rows(j, 0, j) } -> std::same_as<prim::strided_rows<typename Tokens::element>>;
  { Tokens::is_one_run } -> std::convertible_to<bool>;
};

/// K and V of a sequence; `of` finds them in the arguments of a launch.
template <class Source>
concept key_source = token_rows<decltype(Source::k)> && token_rows<decltype(Source::v)> &&
                     (!Source::in_place || (token_rows_in_place<decltype(Source::k)> &&
                                            token_rows_in_place<decltype(Source::v)>)) &&
                     requires(const attention_kernel_args& args, const prim::sequence& seq) {
  { Source::of(args, seq) } -> std::same_as<Source>;
};

/// One tensor, all of whose tokens lie at the same distance: a single run.
template <class Element>
class strided_tokens {
 public:
  using element = Element;
  using stored = Element;
  static constexpr bool in_place = true;
  static constexpr bool is_one_run = true;

  TESSERA_INLINE strided_tokens(const void* data, const row_strides& strides, std::int64_t entry,
                                std::int64_t first_token, std::int64_t count)
      : data_(static_cast<const Element*>(data) + entry * strides.batch +
              first_token * strides.row),
        stride_(strides.row),
        head_stride_(strides.head),
        count_(count) {}

  TESSERA_INLINE const Element* row(std::int64_t j, int head) const {
    return data_ + j * stride_ + head * head_stride_;
  }
  TESSERA_INLINE prim::strided_rows<Element> rows(std::int64_t j, int head) const {
    return {row(j, head), stride_};
  }
  TESSERA_INLINE auto places(std::int64_t j, int head) const { return rows(j, head); }
  TESSERA_INLINE auto load(std::int64_t j, int, int, int head) const { return rows(j, head); }
  /// Every `distance`-th token of a run from token j on.
  TESSERA_INLINE prim::strided_rows<Element> run_rows(std::int64_t j, int head,
                                                      std::int64_t distance) const {
    return {row(j, head), stride_ * distance};
  }
  TESSERA_INLINE std::int64_t contiguous_run(std::int64_t j) const { return count_ - j; }
  /// Distance of tokens in a run, and of the heads of a token.
  TESSERA_INLINE std::int64_t stride() const { return stride_; }
  TESSERA_INLINE std::int64_t head_stride() const { return head_stride_; }

 private:
  const Element* data_;  ///< token 0 of head 0
  std::int64_t stride_;
  std::int64_t head_stride_;
  std::int64_t count_;
};

/// Dense tensors (with or without lengths) and packed ones.
template <class Element>
struct strided_source {
  static constexpr bool in_place = true;
  strided_tokens<Element> k;
  strided_tokens<Element> v;

  static TESSERA_INLINE strided_source of(const attention_kernel_args& args,
                                          const prim::sequence& seq) {
    return {{args.k, args.k_strides, seq.index, seq.k_begin, seq.k_len},
            {args.v, args.v_strides, seq.index, seq.k_begin, seq.k_len}};
  }
};

/// One tensor of a pool of pages: a run ends with its page.
template <class Element>
class paged_tokens {
 public:
  using element = Element;
  using stored = Element;
  static constexpr bool in_place = true;
  static constexpr bool is_one_run = false;

  TESSERA_INLINE paged_tokens(const void* pool, const row_strides& strides, const page_table& pages,
                              const prim::sequence& seq)
      : pool_(static_cast<const Element*>(pool)),
        numbers_(pages.numbers + seq.index * pages.row),
        strides_(strides),
        page_(prim::divisor::of(static_cast<std::uint32_t>(pages.page_size))),
        count_(seq.k_len) {}

  TESSERA_INLINE const Element* row(std::int64_t j, int head) const {
    const std::int64_t page = page_.quotient(static_cast<int>(j));
    return pool_ + numbers_[page] * strides_.batch + (j - page * page_.value) * strides_.row +
           head * strides_.head;
  }

  /// Tokens from `first` on, through all pages: those of its page without another look-up.
  struct token_range {
    using element = Element;
    const paged_tokens& tokens;
    std::int64_t first;
    int head;
    const Element* begin;
    std::int64_t in_page;
    TESSERA_INLINE const Element* row(std::int64_t i) const {
      if (i < in_page) return begin + i * tokens.strides_.row;
      return tokens.row(first + i, head);
    }
  };
  TESSERA_INLINE token_range rows(std::int64_t j, int head) const {
    return {*this, j, head, row(j, head), page_end(j) - j};
  }
  TESSERA_INLINE token_range places(std::int64_t j, int head) const { return rows(j, head); }
  TESSERA_INLINE token_range load(std::int64_t j, int, int, int head) const {
    return rows(j, head);
  }
  TESSERA_INLINE prim::strided_rows<Element> run_rows(std::int64_t j, int head,
                                                      std::int64_t distance) const {
    return {row(j, head), strides_.row * distance};
  }
  /// Where tokens [j, j + count) lie, a look-up for each page; the last stands for those behind it.
  template <int Most>
  TESSERA_INLINE void find(std::int64_t j, int count, int head, const Element* (&to)[Most]) const {
    std::int64_t page = page_.quotient(static_cast<int>(j));
    std::int64_t slot = j - page * page_.value;
    to[0] = row(j, head);
    for (int i = 1; i < Most; ++i) {
      to[i] = to[i - 1];
      if (i >= count) continue;
      to[i] += strides_.row;
      if (++slot < page_.value) continue;
      slot = 0;
      to[i] = page_row(++page, head);
    }
  }
  TESSERA_INLINE std::int64_t contiguous_run(std::int64_t j) const {
    const std::int64_t end = page_end(j);
    return (end < count_ ? end : count_) - j;
  }
  /// The page of token j; where a page begins.
  TESSERA_INLINE std::int64_t page_of(std::int64_t j) const {
    return page_.quotient(static_cast<int>(j));
  }
  TESSERA_INLINE std::int64_t page_size() const { return page_.value; }
  TESSERA_INLINE const Element* page_row(std::int64_t page, int head) const {
    return pool_ + numbers_[page] * strides_.batch + head * strides_.head;
  }
  TESSERA_INLINE std::int64_t stride() const { return strides_.row; }
  TESSERA_INLINE std::int64_t head_stride() const { return strides_.head; }

 private:
  TESSERA_INLINE std::int64_t page_end(std::int64_t j) const {
    return (page_.quotient(static_cast<int>(j)) + std::int64_t{1}) * page_.value;
  }

  const Element* pool_;          ///< slot 0 of page 0, head 0
  const std::int32_t* numbers_;  ///< the sequence's pages
  row_strides strides_;
  prim::divisor page_;
  std::int64_t count_;
};

/// Keys and values in pages that a block table lists.
template <class Element>
struct paged_source {
  static constexpr bool in_place = true;
  paged_tokens<Element> k;
  paged_tokens<Element> v;

  static TESSERA_INLINE paged_source of(const attention_kernel_args& args,
                                        const prim::sequence& seq) {
    return {{args.k, args.k_strides, args.pages, seq}, {args.v, args.v_strides, args.pages, seq}};
  }
};

/// The source of a row's keys.
template <class Element, key_storage Keys>
using key_source_for =
    std::conditional_t<Keys == key_storage::paged, paged_source<Element>, strided_source<Element>>;

}  // namespace tessera::kernels::attention
