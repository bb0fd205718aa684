// Rows of a batch of bf16 as they are, in the order in which codes of 4 bits meet them as bf16.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/bf16_codes.hpp>
#include <tessera/kernels/quantized/cpu/code_rows.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/processor_model.hpp>
#include <tessera/prim/cpu/code_pairs.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::cpu {

/// Products of a block of codes with rows of bf16, and what sums of groups of these are multiplied
/// by.
template <class Isa, bool IsAffine, int Groups>
class pair_form {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using pairs = prim::code_pairs<Isa>;

 public:
  static constexpr int together = 1;
  static constexpr int code_bits = 4;
  static constexpr int most_groups = Groups;  ///< of a block
  /// Of weights whose scales are bytes: blocks then have as many.
  static constexpr int byte_groups = IsAffine ? 0 : Groups == 4 ? 4 : 8;

  pair_form(const std::array<bf16, 16>& entries, bool biased)
      : table_(pairs::table_of(entries.data())), biased_(biased) {}

  template <int Count, int Rows>
  TESSERA_INLINE void multiply(const typename pairs::reg (&codes)[Count][together],
                               const std::byte* x, std::int64_t stride,
                               reg (&products)[Count][Rows]) const {
    typename pairs::reg of_rows[Count];
    TESSERA_UNROLL
    for (int r = 0; r < Count; ++r) of_rows[r] = codes[r][0];
    pairs::products(table_, of_rows, reinterpret_cast<const bf16*>(x),
                    stride / static_cast<std::int64_t>(sizeof(bf16)), products);
  }

  static constexpr bool has_offsets = IsAffine;
  TESSERA_INLINE reg offsets(reg scales, reg zeros) const {
    return offsets_of_middle<vec>(scales, zeros, biased_);
  }

 private:
  typename pairs::reg table_;
  bool biased_;
};

template <class Isa>
class pair_rows {
 public:
  static constexpr int most_rows = 4;  ///< that meet codes together
  /// Rows of weights that do, side by side: what binds several rows of x are loads of them. One is
  /// bound by the rate of memory, which is highest for one stream.
  static constexpr int weight_rows(int rows) { return rows > 1 ? 2 : 1; }
  /// One row of x may fill most of Zen 5's first-level cache: rows of weights are then read to
  /// their end.
  std::int64_t bytes_in_cache(int rows) const {
    return rows > 1 || on_zen_4_ ? bytes_of_x_in_cache : 32 << 10;
  }
  /// From codes that are read to those whose scales and zeros are asked for, in bytes.
  std::int64_t numbers_ahead() const { return on_zen_4_ ? 2048 : 8192; }
  /// From codes that are read to those asked for, 0: none are. For several rows of x the same
  /// columns of the next rows of weights, or of those behind them.
  std::int64_t bytes_ahead(int rows, std::int64_t bytes_of_rows) const {
    if (rows > 1) return on_zen_4_ ? bytes_of_rows : 2 * bytes_of_rows;
    return on_zen_4_ ? 0 : 8192;
  }
  static constexpr int element_bytes = sizeof(bf16);
  static constexpr auto is_special = is_huge;

  explicit pair_rows(const packed_weights& weights)
      : biased_(is_biased(weights)),
        affine_(weights.mode == weight_mode::affine),
        entries_(bf16_entries(weights.mode)),
        layout_{.columns = weights.columns(),
                .groups = weights.groups,
                .group_size = weights.group_size,
                .code_bits = weights.bits,
                .together = 1,
                .element_bytes = element_bytes} {}

  const code_row_layout& layout() const { return layout_; }

  template <class Body>
  void with_form(const Body& body) const {
    if (affine_) return with_groups<true>(body);
    with_groups<false>(body);
  }

  /// The floats of a row of bf16, with zeros up to a whole block, and the sums of its groups.
  code_row_scale pack(const float* x, std::byte* to, float* sums) const {
    auto* place = reinterpret_cast<bf16*>(to);
    const int block = layout_.block();
    bool has_specials = false;
    std::fill(sums, sums + layout_.sums(), 0.0f);
    for (std::int64_t at = 0; at < layout_.columns; at += block) {
      for (int j = 0; j < codes_of_word; ++j) {
        for (int i = 0; i < 2 * code_row_layout::lanes; ++i, ++place) {
          const float own = x[at + i * codes_of_word + j];
          *place = is_special(own) ? bf16() : bf16(own);
        }
      }
    }
    for (std::int64_t group = 0; group < layout_.groups; ++group) {
      const float* const own = x + group * layout_.group_size;
      for (std::int64_t i = 0; i < layout_.group_size; ++i) {
        const bool special = is_special(own[i]);
        has_specials = has_specials || special;
        sums[group] += special ? 0.0f : own[i];
      }
    }
    return {1, 1, has_specials};
  }

 private:
  static constexpr int codes_of_word = prim::code_pairs<Isa>::codes_of_word;

  template <bool IsAffine, class Body>
  void with_groups(const Body& body) const {
    if (layout_.group_size >= 32) return body(pair_form<Isa, IsAffine, 4>(entries_, biased_));
    body(pair_form<Isa, IsAffine, 16>(entries_, biased_));
  }

  bool biased_, affine_;
  /// It reads one stream fastest where nobody asks for its lines. All others have what was measured
  /// on Zen 5, which without requests has 0.3 to 0.7 of its rate, and a larger first-level cache.
  bool on_zen_4_ = prim::is_zen_4(prim::this_processor<Isa>());
  std::array<bf16, 16> entries_;
  code_row_layout layout_;
};

}  // namespace tessera::kernels::quantized::cpu
