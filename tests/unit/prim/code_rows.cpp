// Rows of elements of 8 bits as wider elements: every code, every length.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/code_rows.hpp>

#include "native.hpp"

namespace {

using namespace tessera;
using prim::code_block;

template <class Code>
std::vector<Code> codes_from(int first, int count) {
  std::vector<Code> codes;
  for (int i = 0; i < count; ++i) {
    codes.push_back(std::bit_cast<Code>(static_cast<std::uint8_t>(first + i)));
  }
  return codes;
}

template <class Code, class Element>
void expect_the_same_numbers() {
  for (int count = 0; count <= 256; count = count < 70 ? count + 1 : count + 31) {
    // As many codes as there are: what is read behind them would be found by the sanitizers.
    const std::vector<Code> codes = codes_from<Code>(256 - count, count);
    std::vector<Element> wide(static_cast<std::size_t>((count / code_block + 1) * code_block));
    prim::widen_row<test::native_isa>(codes.data(), count, wide.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float want = prim::float_of(codes[i]), got = static_cast<float>(wide[i]);
      ASSERT_EQ(std::isnan(got), std::isnan(want)) << "code " << i << " of " << count;
      if (std::isnan(want)) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
          << "code " << i << " of " << count;
    }
  }
}

TEST(code_rows, every_code_becomes_its_number) {
  expect_the_same_numbers<f8_e4m3, float>();
  expect_the_same_numbers<f8_e4m3, f16>();
  expect_the_same_numbers<f8_e4m3, bf16>();
  expect_the_same_numbers<f8_e5m2, float>();
  expect_the_same_numbers<f8_e5m2, f16>();
  expect_the_same_numbers<f8_e5m2, bf16>();
  expect_the_same_numbers<std::int8_t, float>();
  expect_the_same_numbers<std::int8_t, f16>();
  expect_the_same_numbers<std::int8_t, bf16>();
}

TEST(code_rows, nearest_of_codes_is_one_of_their_numbers) {
  using isa = test::native_isa;
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::i8, 2.5f), 2.0f);
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::i8, -1000.0f), -128.0f);
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::f8_e4m3, 17.0f), 16.0f);
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::f8_e4m3, 1e9f), 448.0f);
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::f8_e5m2, 17.0f), 16.0f);
  EXPECT_EQ(prim::nearest_of_codes<isa>(dtype::f8_e5m2, -1e9f), -57344.0f);
}

}  // namespace
