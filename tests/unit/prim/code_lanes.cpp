// Codes out of a stream of bits, one by one by their definition.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/code_lanes.hpp>

#include "native.hpp"

namespace {

using tessera::prim::codes_of_block;
using code_lanes = tessera::prim::code_lanes<tessera::test::native_isa>;

std::vector<std::uint32_t> noise(std::size_t count) {
  std::vector<std::uint32_t> words;
  std::uint32_t word = 12345;
  for (std::size_t i = 0; i < count; ++i) words.push_back(word = word * 1664525u + 1013904223u);
  return words;
}

std::int32_t code_at(const std::vector<std::uint32_t>& words, int bits, int code) {
  std::int32_t value = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const auto place = static_cast<std::size_t>(code * bits + bit);
    if (place / 32 < words.size()) {
      value |= static_cast<std::int32_t>(words[place / 32] >> place % 32 & 1u) << bit;
    }
  }
  return value;
}

TEST(code_lanes, unpack_reads_bits_in_their_order) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (int count = 1; count <= bits; ++count) {
      // As many words as there are: what is read behind them would be found by the sanitizers.
      const std::vector<std::uint32_t> words = noise(static_cast<std::size_t>(count));
      std::array<std::int32_t, codes_of_block> codes{};
      code_lanes::unpack(words.data(), count, bits, codes.data());
      for (int i = 0; i < codes_of_block; ++i) {
        EXPECT_EQ(codes[static_cast<std::size_t>(i)], code_at(words, bits, i))
            << "code " << i << " of " << bits << " bits in " << count << " words";
      }
    }
  }
}

TEST(code_lanes, look_up_finds_the_entry_of_each_code) {
  std::array<float, 16> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.5f * static_cast<float>(i) - 3.0f;
  std::array<std::int32_t, codes_of_block> codes{};
  std::array<float, codes_of_block> values{};
  for (int i = 0; i < codes_of_block; ++i) codes[static_cast<std::size_t>(i)] = i * 7 % 16;
  code_lanes::look_up(table.data(), codes.data(), values.data());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(values[i], table[static_cast<std::size_t>(codes[i])]) << i;
  }
}

}  // namespace
