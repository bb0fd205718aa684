// Codes as bytes and as words, and whole sums of them, one by one by their definition.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/code_bytes.hpp>
#include <tessera/prim/cpu/code_words.hpp>

namespace {

using namespace tessera;

/// 64 bytes that differ.
[[maybe_unused]] std::array<std::byte, 64> some_codes() {
  std::array<std::byte, 64> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>(i * 37 + 11);
  }
  return codes;
}
[[maybe_unused]] int nibble(const std::byte* codes, std::size_t code) {
  return std::to_integer<int>((codes[code / 2] >> (code % 2 * 4)) & std::byte{15});
}

#if defined(__AVX512VNNI__)
using bytes = prim::code_bytes<isa::avx512_vnni>;

TEST(code_bytes, whole_sums_are_those_of_numbers) {
  constexpr int rows = 3, lane_codes = 8;
  const auto codes = some_codes();
  // Numbers at both ends of what fits, in digits: high, middle and low, of even codes and odd ones.
  std::array<std::array<std::int32_t, 128>, rows> numbers{};
  std::array<std::int8_t, rows * 3 * 128> digits{};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < 128; ++i) {
      constexpr std::int32_t most = 1 << 22;
      const auto spread = static_cast<std::int32_t>((row * 128 + i) * 1103515245u >> 9);
      numbers[row][i] = i % 5 == 0 ? most : i % 7 == 0 ? -most : spread % most;
      std::int32_t rest = numbers[row][i];
      for (std::size_t digit = 3; digit-- > 0;) {
        const auto low = static_cast<std::int8_t>(rest);
        digits[((row * 3 + digit) * 2 + i % 2) * 64 + i / 2] = low;
        rest = (rest - low) >> 8;
      }
    }
  }
  const auto block = bytes::load(codes.data());
  const __m512i halves[2] = {bytes::lower_codes(block), bytes::upper_codes(block)};
  __m512 sums[rows];
  bytes::whole_sums(halves, digits.data(), 3 * 128, sums);
  for (std::size_t row = 0; row < rows; ++row) {
    std::array<float, 16> lanes{};
    _mm512_storeu_ps(lanes.data(), sums[row]);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      std::int64_t sum = 0;
      for (std::size_t i = lane * lane_codes; i < (lane + 1) * lane_codes; ++i) {
        sum += std::int64_t{nibble(codes.data(), i)} * numbers[row][i];
      }
      EXPECT_EQ(lanes[lane], static_cast<float>(sum)) << row << ", " << lane;
    }
  }
}

TEST(code_bytes, load_n_reads_no_more_than_there_is) {
  const auto codes = some_codes();
  std::array<std::byte, 64> loaded{};
  _mm512_storeu_si512(loaded.data(), bytes::load_n(codes.data(), 20));
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    EXPECT_EQ(loaded[i], i < 20 ? codes[i] : std::byte{0}) << i;
  }
}

TEST(code_bytes, spread_gives_each_lane_the_scale_of_its_group) {
  std::array<float, 16> scales{}, lanes{};
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i);
  const __m512 all = _mm512_loadu_ps(scales.data());
  for (int shift = 3; shift < 8; ++shift) {
    const auto columns = bytes::later(bytes::columns_of_lanes(8), 256);
    _mm512_storeu_ps(lanes.data(), bytes::spread(all, columns, bytes::broadcast(shift)));
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      EXPECT_EQ(lanes[lane], scales[((256 + 8 * lane) >> shift) % 16]) << shift << ", " << lane;
    }
  }
}
#endif

#if defined(__AVX512BF16__)
TEST(code_words, look_up_puts_each_code_in_its_place) {
  using lanes = prim::code_words<isa::avx512_bf16>;
  const auto codes = some_codes();
  std::array<bf16, 16> entries{};
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].bits = static_cast<std::uint16_t>(i);
  const auto table = lanes::table_of(entries.data());
  for (std::size_t first = 0; first < 64; first += 16) {
    std::array<bf16, 32> words{};
    lanes::look_up(table, codes.data() + first, words.data());
    for (int place = 0; place < lanes::block; ++place) {
      const auto code = static_cast<std::size_t>(prim::code_at_place(place));
      EXPECT_EQ(words[static_cast<std::size_t>(place)].bits, nibble(codes.data() + first, code))
          << place;
    }
  }
}
#endif

}  // namespace
