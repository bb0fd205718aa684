// Rows of a batch as numbers of fixed point in three signed bytes: multiples of a power of two that
// is the row's own, the largest of which have `number_bits` bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::quantized::cpu {

/// Where a row's parts lie, all rows alike.
struct fixed_row_layout {
  std::int64_t columns = 0;
  std::int64_t groups = 0;
  std::int64_t group_size = 0;
  int code_bits = 0;       ///< 4 or 8
  bool subtracts = false;  ///< sums of groups have the other sign

  static constexpr int bytes_of_block = 64;  ///< of codes
  static constexpr int digits = 3;

  constexpr int block() const { return bytes_of_block * 8 / code_bits; }
  /// Eight codes of 4 bits or four of 8 bits times numbers of so many bits make no sum of more than
  /// 31 bits.
  constexpr int number_bits() const { return code_bits == 4 ? 22 : 21; }
  constexpr std::int64_t blocks() const { return (columns + block() - 1) / block(); }
  constexpr std::int64_t bytes() const { return blocks() * block() * digits; }
  constexpr std::int64_t sums() const { return whole_lines(groups); }
};

/// What a row's results are multiplied by: two powers of two, as one may be none of f32's.
struct fixed_row_scale {
  float first = 1, second = 1;
  bool has_specials = false;  ///< elements that are not finite, which are 0 among the numbers
};

/// The floats of a row, with zeros up to a whole block, become numbers and the sums of its groups.
template <class Isa>
fixed_row_scale fix_row(const fixed_row_layout& layout, const float* x, std::int8_t* to,
                        float* sums) {
  constexpr std::int32_t infinity = 0x7f800000;
  std::int32_t most = 0, largest = 0;
  for (std::int64_t i = 0; i < layout.columns; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    largest = std::max(largest, bits);
    most = std::max(most, bits < infinity ? bits : 0);
  }
  const int shift = layout.number_bits() - 1 - exponent_of(std::bit_cast<float>(most));
  const int half = shift / 2;
  const float first = power_of_two(half), second = power_of_two(shift - half);
  const int block = layout.block(), registers = block / layout.bytes_of_block;
  std::fill(sums, sums + layout.sums(), 0.0f);
  std::int32_t numbers[2 * fixed_row_layout::bytes_of_block];
  for (std::int64_t at = 0; at < layout.columns; at += block, to += block * layout.digits) {
    for (int i = 0; i < block; ++i) {
      // Rounded to whole numbers by what is added.
      constexpr float whole = 0x1.8p23f;
      const float number = x[at + i] * first * second + whole;
      const bool finite = (std::bit_cast<std::int32_t>(x[at + i]) & 0x7fffffff) < infinity;
      numbers[i] =
          finite ? std::bit_cast<std::int32_t>(number) - std::bit_cast<std::int32_t>(whole) : 0;
    }
    for (int r = 0; r < registers; ++r) {
      for (int i = 0; i < layout.bytes_of_block; ++i) {
        const std::int32_t number = numbers[i * registers + r];
        const auto low = static_cast<std::int8_t>(number);
        const std::int32_t rest = (number - low) >> 8;
        const auto middle = static_cast<std::int8_t>(rest);
        std::int8_t* const digit = to + r * layout.bytes_of_block + i;
        digit[0] = static_cast<std::int8_t>((rest - middle) >> 8);
        digit[block] = middle;
        digit[2 * block] = low;
      }
    }
    const int together = static_cast<int>(std::min<std::int64_t>(layout.group_size, block));
    const auto end = static_cast<int>(std::min<std::int64_t>(block, layout.columns - at));
    for (int i = 0; i < end; i += together) {
      std::int32_t sum = 0;
      for (int k = 0; k < together; ++k) sum += numbers[i + k];
      const auto signed_sum = static_cast<float>(layout.subtracts ? -sum : sum);
      sums[(at + i) / layout.group_size] += signed_sum;
    }
  }
  return {power_of_two(-half), power_of_two(half - shift), largest >= infinity};
}

}  // namespace tessera::kernels::quantized::cpu
