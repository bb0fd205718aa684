// Conversions of the types of 16 and 8 bits against their definition: a value is the nearest
// multiple of its binade's quantum, ties to even.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace {

using tessera::bf16;
using tessera::dtype;
using tessera::f16;
using tessera::f8_e4m3;
using tessera::f8_e5m2;

struct format {
  int mantissa_bits;
  int lowest_exponent;  // of normal numbers
  double overflow;      // magnitudes from here on round to infinity
};
constexpr format half{10, -14, 65520.0};
constexpr format brain{7, -126, 0x1.ffp127};

// The rounded value, computed in double.
double nearest(const format& to, float value) {
  const double exact = value;
  if (!std::isfinite(exact) || exact == 0.0) return exact;
  if (std::fabs(exact) >= to.overflow) return std::copysign(HUGE_VAL, exact);
  const int exponent = std::max(std::ilogb(exact), to.lowest_exponent);
  const double quantum = std::ldexp(1.0, exponent - to.mantissa_bits);
  return std::nearbyint(exact / quantum) * quantum;
}

// The value of a bit pattern, computed in double.
double decoded(const format& from, int exponent_bits, std::uint32_t bits) {
  const std::uint32_t mantissa = bits & ((1u << from.mantissa_bits) - 1);
  const std::uint32_t exponent = (bits >> from.mantissa_bits) & ((1u << exponent_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == (1u << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  }
  const std::uint32_t leading = exponent == 0 ? 0u : 1u << from.mantissa_bits;
  const int power = std::max(static_cast<int>(exponent), 1) - 1 + from.lowest_exponent;
  return sign * std::ldexp(static_cast<double>(leading + mantissa), power - from.mantissa_bits);
}

template <class Element>
void expect_rounds(const format& to, float value) {
  const auto rounded = static_cast<double>(static_cast<float>(Element(value)));
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(rounded)) << std::bit_cast<std::uint32_t>(value);
    return;
  }
  ASSERT_EQ(rounded, nearest(to, value)) << std::hexfloat << value;
  ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << std::hexfloat << value;
}

template <class Element>
void expect_decodes(const format& from, int exponent_bits) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    Element element;
    element.bits = static_cast<std::uint16_t>(bits);
    const auto ours = static_cast<double>(static_cast<float>(element));
    const double want = decoded(from, exponent_bits, bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(ours)) << bits;
      continue;
    }
    ASSERT_EQ(ours, want) << bits;
    ASSERT_EQ(std::signbit(ours), (bits >> 15) != 0) << bits;
  }
}

// Every value of the format, every midpoint between neighbours, and one float to either side.
template <class Element>
void expect_rounds_around_every_value(const format& to, std::uint32_t infinity) {
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    Element low;
    low.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(low);
    Element high;
    high.bits = static_cast<std::uint16_t>(bits + 1);
    const float above =
        bits + 1 == infinity ? static_cast<float>(to.overflow) : static_cast<float>(high);
    const float middle = bits + 1 == infinity ? above : value + (above - value) / 2;
    for (const float center : {value, middle}) {
      for (const float probe :
           {std::nextafter(center, 0.0f), center, std::nextafter(center, HUGE_VALF)}) {
        expect_rounds<Element>(to, probe);
        expect_rounds<Element>(to, -probe);
      }
    }
  }
}

TEST(dtype, every_f16_pattern_decodes) {
  expect_decodes<f16>(half, 5);
}
TEST(dtype, every_bf16_pattern_decodes) {
  expect_decodes<bf16>(brain, 8);
}

TEST(dtype, f16_rounds_to_nearest_even_around_every_value) {
  expect_rounds_around_every_value<f16>(half, 0x7c00u);
}
TEST(dtype, bf16_rounds_to_nearest_even_around_every_value) {
  expect_rounds_around_every_value<bf16>(brain, 0x7f80u);
}

TEST(dtype, patterns_across_all_floats_round_to_nearest_even) {
  for (std::uint64_t word = 0; word < (1ull << 32); word += 2011) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    expect_rounds<f16>(half, value);
    expect_rounds<bf16>(brain, value);
  }
}

TEST(dtype, nan_payloads_stay_nan) {
  for (const std::uint32_t word :
       {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f80ffffu}) {
    const auto nan = std::bit_cast<float>(word);
    EXPECT_TRUE(std::isnan(static_cast<float>(f16(nan)))) << word;
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(nan)))) << word;
  }
}

// Types of 8 bits: all 256 codes, every midpoint between neighbours, what saturates.

constexpr format e4m3{3, -6, HUGE_VAL};
constexpr format e5m2{2, -14, HUGE_VAL};

// The value of a code; `codes` of each sign are finite, those behind them `infinity` or NaN.
template <class Element>
double decoded_8(const format& from, std::uint32_t codes, bool infinity, std::uint32_t code) {
  const double sign = code >= 0x80u ? -1.0 : 1.0;
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude >= codes) {
    return infinity && magnitude == codes ? sign * HUGE_VAL : std::nan("");
  }
  const std::uint32_t mantissa = magnitude & ((1u << from.mantissa_bits) - 1);
  const std::uint32_t exponent = magnitude >> from.mantissa_bits;
  const std::uint32_t leading = exponent == 0 ? 0u : 1u << from.mantissa_bits;
  const int power = std::max(static_cast<int>(exponent), 1) - 1 + from.lowest_exponent;
  return sign * std::ldexp(static_cast<double>(leading + mantissa), power - from.mantissa_bits);
}

template <class Element>
void expect_8_bits(const format& type, std::uint32_t codes, bool infinity) {
  const double largest = decoded_8<Element>(type, codes, infinity, codes - 1);
  for (std::uint32_t code = 0; code < 256; ++code) {
    Element element;
    element.bits = static_cast<std::uint8_t>(code);
    const auto ours = static_cast<float>(element);
    const double want = decoded_8<Element>(type, codes, infinity, code);
    ASSERT_EQ(std::isnan(ours), std::isnan(want)) << code;
    if (std::isnan(want)) continue;
    ASSERT_EQ(static_cast<double>(ours), want) << code;
    ASSERT_EQ(std::signbit(ours), code >= 0x80u) << code;
    if (std::isinf(want)) continue;
    EXPECT_EQ(Element(ours).bits, code);
  }
  const auto expect_nearest = [&](float value) {
    const double want = std::clamp(nearest(type, value), -largest, largest);
    const auto rounded = static_cast<float>(Element(value));
    ASSERT_EQ(static_cast<double>(rounded), want) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << std::hexfloat << value;
  };
  for (std::uint32_t code = 0; code < codes; ++code) {
    const auto value = static_cast<float>(decoded_8<Element>(type, codes, infinity, code));
    const double next =
        code + 1 == codes ? 2 * largest : decoded_8<Element>(type, codes, infinity, code + 1);
    const float middle = value + (static_cast<float>(next) - value) / 2;
    for (const float center : {value, middle}) {
      for (const float probe :
           {std::nextafter(center, -HUGE_VALF), center, std::nextafter(center, HUGE_VALF)}) {
        expect_nearest(probe);
        expect_nearest(-probe);
      }
    }
  }
  for (std::uint64_t word = 0; word < (1ull << 32); word += 4021) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    if (std::isfinite(value)) expect_nearest(value);
    if (std::isnan(value)) {
      ASSERT_EQ(Element(value).bits, 0x7fu) << word;
    }
  }
  EXPECT_EQ(static_cast<double>(static_cast<float>(Element(HUGE_VALF))), largest);
  EXPECT_EQ(static_cast<double>(static_cast<float>(Element(-HUGE_VALF))), -largest);
}

TEST(dtype, every_e4m3_code_decodes_and_floats_round_to_the_nearest) {
  expect_8_bits<f8_e4m3>(e4m3, 0x7f, false);
}
TEST(dtype, every_e5m2_code_decodes_and_floats_round_to_the_nearest) {
  expect_8_bits<f8_e5m2>(e5m2, 0x7c, true);
}

TEST(dtype, conversions_are_constant_expressions) {
  static_assert(f16(1.0f).bits == 0x3c00);
  static_assert(bf16(1.0f).bits == 0x3f80);
  static_assert(static_cast<float>(f16(65504.0f)) == 65504.0f);
  static_assert(f16(0x1p-24f).bits == 1);
  static_assert(f16(0x1p-25f).bits == 0);
  static_assert(f8_e4m3(448.0f).bits == 0x7e);
  static_assert(f8_e5m2(1.0f).bits == 0x3c);
  static_assert(static_cast<float>(f8_e4m3(0x1p-9f)) == 0x1p-9f);
  SUCCEED();
}

TEST(dtype, sizes_are_those_of_the_storage_types) {
  EXPECT_EQ(tessera::size_of(dtype::none), 0u);
  EXPECT_EQ(tessera::size_of(dtype::f16), sizeof(f16));
  EXPECT_EQ(tessera::size_of(dtype::f8_e4m3), sizeof(f8_e4m3));
  EXPECT_EQ(tessera::size_of(dtype::f8_e5m2), sizeof(f8_e5m2));
  EXPECT_EQ(tessera::size_of(dtype::bf16), sizeof(bf16));
  EXPECT_EQ(tessera::size_of(dtype::f32), 4u);
  EXPECT_EQ(tessera::size_of(dtype::f64), 8u);
  EXPECT_EQ(tessera::size_of(dtype::i32), 4u);
  EXPECT_EQ(tessera::size_of(dtype::i64), 8u);
  EXPECT_EQ(tessera::size_of(dtype::u8), 1u);
  EXPECT_EQ(tessera::size_of(dtype::f8_e4m3), 1u);
  EXPECT_EQ(tessera::size_of(dtype::f8_e5m2), 1u);
}

TEST(dtype, only_f32_f16_bf16_are_operand_types) {
  for (const dtype type : {dtype::none, dtype::f64, dtype::i32, dtype::i64, dtype::u8,
                           dtype::f8_e4m3, dtype::f8_e5m2}) {
    EXPECT_FALSE(tessera::is_floating_16_or_32(type)) << tessera::name_of(type);
  }
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    EXPECT_TRUE(tessera::is_floating_16_or_32(type)) << tessera::name_of(type);
  }
}

}  // namespace
