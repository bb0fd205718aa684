// Rows of a batch as numbers of fixed point in three signed bytes: multiples of a power of two that
// is the row's own, the largest of which have `number_bits` bits. Codes of 4 or 8 bits meet them as
// bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/kernels/quantized/cpu/code_rows.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/code_bytes.hpp>

namespace tessera::kernels::quantized::cpu {

/// How codes become unsigned bytes.
enum class byte_codes : std::uint8_t { nibbles, e2m1, bytes };

/// Elements of E2M1 in halves, from -6 on.
inline constexpr std::array<std::uint8_t, 16> e2m1_bytes{12, 13, 14, 15, 16, 18, 20, 24,
                                                         12, 11, 10, 9,  8,  6,  4,  0};
inline constexpr float e2m1_zero = 12, e2m1_unit = 0.5f;

/// Products of a block of codes with rows of fixed point, and what sums of groups of these are
/// multiplied by.
template <class Isa, byte_codes Codes, int Together>
class fixed_form {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using bytes = prim::code_bytes<Isa>;

 public:
  static constexpr int together = Together;
  static constexpr int code_bits = Codes == byte_codes::bytes ? 8 : 4;
  static constexpr int most_groups = 16;  ///< of a block
  static constexpr int byte_groups = 0;   ///< offsets are made of scales, as floats

  explicit fixed_form(bool biased) : table_(bytes::table_of(e2m1_bytes.data())), biased_(biased) {}

  template <int Rows>
  TESSERA_INLINE void multiply(const typename bytes::reg (&all_codes)[1][Together],
                               const std::byte* x, std::int64_t stride,
                               reg (&products)[1][Rows]) const {
    const auto& codes = all_codes[0];
    constexpr int of_codes = 8 / code_bits;
    typename bytes::reg unpacked[Together * of_codes];
    TESSERA_UNROLL
    for (int i = 0; i < Together; ++i) {
      if constexpr (Codes == byte_codes::bytes) {
        unpacked[i] = codes[i];
      } else {
        unpacked[2 * i] = bytes::lower_codes(codes[i]);
        unpacked[2 * i + 1] = bytes::upper_codes(codes[i]);
      }
    }
    if constexpr (Codes == byte_codes::e2m1) {
      TESSERA_UNROLL
      for (auto& own : unpacked) own = bytes::look_up(table_, own);
    }
    bytes::whole_sums(unpacked, reinterpret_cast<const std::int8_t*>(x), stride, products[0]);
  }

  static constexpr bool has_offsets = true;
  TESSERA_INLINE reg offsets(reg scales, reg zeros) const {
    if constexpr (Codes == byte_codes::e2m1) return vec::mul(scales, vec::broadcast(e2m1_zero));
    return biased_ ? zeros : vec::mul(scales, zeros);
  }

 private:
  typename bytes::reg table_;
  bool biased_;
};

template <class Isa>
class fixed_rows {
 public:
  static constexpr int most_rows = 4;                           ///< that meet codes together
  static constexpr int weight_rows(int /*rows*/) { return 1; }  ///< likewise
  static constexpr std::int64_t bytes_in_cache(int /*rows*/) { return bytes_of_x_in_cache; }
  static constexpr std::int64_t numbers_ahead() { return 8192; }
  static constexpr std::int64_t bytes_ahead(int /*rows*/, std::int64_t /*bytes_of_rows*/) {
    return 4096;
  }
  static constexpr int element_bytes = 3;
  static constexpr auto is_special = is_not_finite;

  explicit fixed_rows(const packed_weights& weights)
      : biased_(is_biased(weights)),
        codes_(weights.mode != weight_mode::affine ? byte_codes::e2m1
               : weights.bits == 4                 ? byte_codes::nibbles
                                                   : byte_codes::bytes),
        layout_{.columns = weights.columns(),
                .groups = weights.groups,
                .group_size = weights.group_size,
                .code_bits = weights.bits,
                .together = codes_ == byte_codes::bytes
                                ? 1
                                : registers_together(weights.group_size,
                                                     codes_ == byte_codes::e2m1 ? 2 : 4),
                .element_bytes = element_bytes} {}

  const code_row_layout& layout() const { return layout_; }

  template <class Body>
  void with_form(const Body& body) const {
    switch (codes_) {
      case byte_codes::bytes:
        return body(fixed_form<Isa, byte_codes::bytes, 1>(biased_));
      case byte_codes::e2m1:
        return body(fixed_form<Isa, byte_codes::e2m1, 2>(biased_));
      case byte_codes::nibbles:
        if (layout_.together == 4) return body(fixed_form<Isa, byte_codes::nibbles, 4>(biased_));
        if (layout_.together == 2) return body(fixed_form<Isa, byte_codes::nibbles, 2>(biased_));
        return body(fixed_form<Isa, byte_codes::nibbles, 1>(biased_));
    }
  }

  /// The floats of a row, with zeros up to a whole block, become numbers and the sums of its
  /// groups; of zeros that are subtracted with the other sign.
  code_row_scale pack(const float* x, std::byte* to, float* sums) const {
    constexpr std::int32_t infinity = 0x7f800000;
    std::int32_t most = 0, largest = 0;
    for (std::int64_t i = 0; i < layout_.columns; ++i) {
      const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
      largest = std::max(largest, bits);
      most = std::max(most, bits < infinity ? bits : 0);
    }
    const int shift = number_bits() - 1 - exponent_of(std::bit_cast<float>(most));
    const int half = shift / 2;
    const float first = power_of_two(half), second = power_of_two(shift - half);
    const int block = layout_.block();
    std::fill(sums, sums + layout_.sums(), 0.0f);
    std::int32_t numbers[most_block];
    for (std::int64_t at = 0; at < layout_.columns; at += block, to += block * digits) {
      for (int i = 0; i < block; ++i) {
        // Rounded to whole numbers by what is added.
        constexpr float whole = 0x1.8p23f;
        const float number = x[at + i] * first * second + whole;
        const bool finite = (std::bit_cast<std::int32_t>(x[at + i]) & 0x7fffffff) < infinity;
        numbers[i] =
            finite ? std::bit_cast<std::int32_t>(number) - std::bit_cast<std::int32_t>(whole) : 0;
      }
      store_digits(numbers, to);
      add_sums(numbers, at, sums);
    }
    const float unit = codes_ == byte_codes::e2m1 ? e2m1_unit : 1.0f;
    return {power_of_two(-half) * unit, power_of_two(half - shift), largest >= infinity};
  }

 private:
  static constexpr int digits = element_bytes;
  static constexpr int most_block = 512;
  static constexpr std::int64_t most_summed = 256;  ///< numbers of 22 bits whose sum has 31

  /// Codes of a lane, of 4 bits 32 ones, of E2M1 16 and of 8 bits four, times numbers of so many
  /// bits make no sum of more than 31 bits.
  int number_bits() const { return codes_ == byte_codes::bytes ? 21 : 22; }

  /// Byte by byte, of codes of 4 bits first those in lower halves.
  void store_digits(const std::int32_t* numbers, std::byte* to) const {
    const int halves = 8 / layout_.code_bits, block = layout_.block();
    auto* digit = reinterpret_cast<std::int8_t*>(to);
    for (int r = 0; r < layout_.together; ++r) {
      for (int half = 0; half < halves; ++half) {
        for (int i = 0; i < layout_.bytes_of_register; ++i, ++digit) {
          const std::int32_t number = numbers[layout_.column(r, i / 4, i % 4 * halves + half)];
          const auto low = static_cast<std::int8_t>(number);
          const std::int32_t rest = (number - low) >> 8;
          const auto middle = static_cast<std::int8_t>(rest);
          digit[0] = static_cast<std::int8_t>((rest - middle) >> 8);
          digit[block] = middle;
          digit[2 * block] = low;
        }
      }
    }
  }

  void add_sums(const std::int32_t* numbers, std::int64_t at, float* sums) const {
    const int block = layout_.block();
    const auto together =
        static_cast<int>(std::min({layout_.group_size, std::int64_t{block}, most_summed}));
    const auto end = static_cast<int>(std::min<std::int64_t>(block, layout_.columns - at));
    for (int i = 0; i < end; i += together) {
      std::int32_t sum = 0;
      for (int k = 0; k < together; ++k) sum += numbers[i + k];
      const auto signed_sum = static_cast<float>(biased_ ? sum : -sum);
      sums[(at + i) / layout_.group_size] += signed_sum;
    }
  }

  bool biased_;
  byte_codes codes_;
  code_row_layout layout_;
};

}  // namespace tessera::kernels::quantized::cpu
