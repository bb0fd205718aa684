// Keys and values of 8 bits in pages. No loop reads them where they lie: a few rows at a time are
// widened to the row's type and read from a buffer that stays in the first-level cache, so that
// memory gives half the bytes of 16-bit keys and the loops are the same. There a row is multiplied
// by the scale of its token too, and rounded to the type.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/code_rows.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::attention::cpu {

/// Rows in a buffer: the first one is row number `first`.
template <class Element>
struct buffered_rows {
  using element = Element;
  const Element* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t first = 0;
  TESSERA_INLINE const Element* row(std::int64_t i) const { return data + (i - first) * stride; }
};

/// Rows that are loaded together.
inline constexpr int most_buffered_rows = 32;

/// One tensor of a pool of pages; see `token_rows`. Belongs to one thread, as its buffer does.
template <class Isa, class Element>
class coded_tokens {
 public:
  using element = Element;
  using stored = std::uint8_t;
  static constexpr bool in_place = false;

  coded_tokens(const void* pool, const row_strides& strides, const slot_scales& scales,
               const attention_kernel_args& args, const prim::sequence& seq, int columns)
      : codes_(pool, strides, args.pages, seq),
        scales_(scales.data, scales.strides, args.pages, seq),
        has_scales_(scales.data != nullptr),
        type_(args.pool_type),
        columns_(columns),
        stride_((columns + prim::code_block - 1) / prim::code_block * prim::code_block) {}

  TESSERA_INLINE const stored* row(std::int64_t j, int head) const { return codes_.row(j, head); }
  TESSERA_INLINE auto places(std::int64_t j, int head) const { return codes_.rows(j, head); }
  TESSERA_INLINE std::int64_t contiguous_run(std::int64_t j) const {
    return codes_.contiguous_run(j);
  }
  TESSERA_INLINE std::int64_t page_of(std::int64_t j) const { return codes_.page_of(j); }
  TESSERA_INLINE std::int64_t page_size() const { return codes_.page_size(); }
  TESSERA_INLINE const stored* page_row(std::int64_t page, int head) const {
    return codes_.page_row(page, head);
  }
  TESSERA_INLINE std::int64_t stride() const { return codes_.stride(); }
  TESSERA_INLINE std::int64_t head_stride() const { return codes_.head_stride(); }

  /// Tokens from `first` on, each good until the next one is asked for.
  struct single_rows {
    using element = Element;
    const coded_tokens& tokens;
    std::int64_t first;
    int head;
    TESSERA_INLINE const Element* row(std::int64_t i) const {
      return tokens.load(first + i, 0, 1, head).row(0);
    }
  };
  TESSERA_INLINE single_rows rows(std::int64_t j, int head) const { return {*this, j, head}; }

  /// At most `most_buffered_rows` tokens, good until the next ones are loaded.
  buffered_rows<Element> load(std::int64_t j, int begin, int end, int head) const {
    switch (type_) {
      case dtype::f8_e4m3:
        return load_as<f8_e4m3>(j, begin, end, head);
      case dtype::f8_e5m2:
        return load_as<f8_e5m2>(j, begin, end, head);
      default:
        return load_as<std::int8_t>(j, begin, end, head);
    }
  }

  /// Asks for the lines of a row.
  TESSERA_INLINE void prefetch(const stored* row) const {
    constexpr int line = 64;
    for (int column = 0; column < columns_; column += line) TESSERA_PREFETCH_L2(row + column);
  }

 private:
  template <class Code>
  TESSERA_INLINE buffered_rows<Element> load_as(std::int64_t j, int begin, int end,
                                                int head) const {
    const auto from = codes_.rows(j, head);
    for (int i = begin; i < end; ++i) {
      Element* const row = buffer_ + (i - begin) * stride_;
      prim::widen_row<Isa>(reinterpret_cast<const Code*>(from.row(i)), columns_, row);
      if (has_scales_) prim::scale_row<Isa>(row, stride_, *scales_.row(j + i, head));
    }
    return {buffer_, stride_, begin};
  }

  paged_tokens<stored> codes_;
  paged_tokens<float> scales_;  ///< a number for each token and head
  bool has_scales_;
  dtype type_;
  int columns_;
  int stride_;
  alignas(64) mutable Element buffer_[most_buffered_rows * max_head_dim];
};

/// Keys and values of 8 bits in pages that a block table lists.
template <class Isa, class Element>
struct coded_source {
  static constexpr bool in_place = false;
  coded_tokens<Isa, Element> k;
  coded_tokens<Isa, Element> v;

  static TESSERA_INLINE coded_source of(const attention_kernel_args& args,
                                        const prim::sequence& seq) {
    return {{args.k, args.k_strides, args.k_token_scales, args, seq, args.head_dim},
            {args.v, args.v_strides, args.v_token_scales, args, seq, args.v_head_dim}};
  }
};

}  // namespace tessera::kernels::attention::cpu
