// Where key j and value j of a sequence lie. Packing (prefill) and decode take the source as a
// parameter; README.md says what a source must have.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>

namespace tessera::kernels::attention {

/// The tokens of one tensor, of all heads: token j of head h is at row(j, h), head h + 1 is
/// head_stride() elements on. From token j on `contiguous_run(j)` tokens are stride() elements
/// apart, however many follow elsewhere. rows(j, h) numbers tokens from j on, through all runs;
/// run_rows(j, h, distance) takes every distance-th of a run.
template <class Tokens>
concept token_rows = requires(const Tokens& tokens, std::int64_t j, int head) {
  typename Tokens::element;
  { tokens.row(j, head) } -> std::same_as<const typename Tokens::element*>;
  { tokens.rows(j, head).row(j) } -> std::same_as<const typename Tokens::element*>;
  { tokens.run_rows(j, head, j) } -> std::same_as<prim::strided_rows<typename Tokens::element>>;
  { tokens.contiguous_run(j) } -> std::same_as<std::int64_t>;
  { tokens.stride() } -> std::same_as<std::int64_t>;
  { tokens.head_stride() } -> std::same_as<std::int64_t>;
};

/// K and V of a sequence; `of` finds them in the arguments of a launch.
template <class Source>
concept key_source = token_rows<decltype(Source::k)> && token_rows<decltype(Source::v)> &&
    requires(const attention_kernel_args& args, const prim::sequence& seq) {
  { Source::of(args, seq) } -> std::same_as<Source>;
};

/// One tensor, all of whose tokens lie at the same distance: a single run.
template <class Element>
class strided_tokens {
 public:
  using element = Element;

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
  strided_tokens<Element> k;
  strided_tokens<Element> v;

  static TESSERA_INLINE strided_source of(const attention_kernel_args& args,
                                          const prim::sequence& seq) {
    return {{args.k, args.k_strides, seq.index, seq.k_begin, seq.k_len},
            {args.v, args.v_strides, seq.index, seq.k_begin, seq.k_len}};
  }
};

}  // namespace tessera::kernels::attention
