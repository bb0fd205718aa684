// Codes as bytes, words and pairs, in blocks, and sums of them, one by one by their definition.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/code_blocks.hpp>
#include <tessera/prim/cpu/code_bytes.hpp>
#include <tessera/prim/cpu/code_pairs.hpp>
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
using blocks = prim::code_blocks<isa::avx512_vnni>;

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
  __m512i block[1];
  blocks::load(codes.data(), block);
  const __m512i halves[2] = {bytes::lower_codes(block[0]), bytes::upper_codes(block[0])};
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
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
using any_blocks = prim::code_blocks<isa::avx512>;

TEST(code_blocks, load_n_reads_no_more_than_there_is) {
  const auto codes = some_codes();
  for (const int left : {0, 20, 64, 100}) {
    // As long as what may be read, for sanitizers.
    std::vector<std::byte> held;
    for (int i = 0; i < left; ++i) held.push_back(codes[static_cast<std::size_t>(i % 64)]);
    __m512i block[2];
    any_blocks::load_n(held.data(), left, block);
    std::array<std::byte, 128> loaded{};
    _mm512_storeu_si512(loaded.data(), block[0]);
    _mm512_storeu_si512(loaded.data() + 64, block[1]);
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      EXPECT_EQ(loaded[i], i < held.size() ? held[i] : std::byte{0}) << left << " " << i;
    }
  }
}

/// Words 0, 1, ... come to lanes with as many neighbours as there are registers.
template <int Registers>
void expect_words_by_lanes() {
  std::array<std::int32_t, 16 * Registers> words{}, sorted{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int32_t>(i);
  __m512i block[Registers];
  any_blocks::load(reinterpret_cast<const std::byte*>(words.data()), block);
  any_blocks::by_lanes(block);
  for (int r = 0; r < Registers; ++r) _mm512_storeu_si512(sorted.data() + 16 * r, block[r]);
  for (int lane = 0; lane < 16; ++lane) {
    for (int r = 0; r < Registers; ++r) {
      EXPECT_EQ(sorted[static_cast<std::size_t>(16 * r + lane)], lane * Registers + r)
          << Registers << " registers, lane " << lane;
    }
  }
}
TEST(code_blocks, lanes_have_neighbouring_words) {
  expect_words_by_lanes<1>();
  expect_words_by_lanes<2>();
  expect_words_by_lanes<4>();
}

TEST(code_blocks, spread_gives_each_lane_the_scale_of_its_group) {
  std::array<float, 16> scales{}, lanes{};
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i) + 1;
  for (int shift = 3; shift < 9; ++shift) {
    const auto groups = any_blocks::groups_of_lanes(8, shift);
    const auto expect = [&](__m512 found) {
      _mm512_storeu_ps(lanes.data(), any_blocks::spread(found, groups));
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        EXPECT_EQ(lanes[lane], scales[(8 * lane) >> shift]) << shift << ", " << lane;
      }
    };
    expect(any_blocks::load_scales<16>(scales.data()));
    if (shift >= 5) expect(any_blocks::load_scales<4>(scales.data()));
  }
}
#endif

#if defined(__AVX512BF16__)
/// Whole numbers: sums are exact in any order.
template <int Registers, int Rows>
void expect_products() {
  using pairs = prim::code_pairs<isa::avx512_bf16>;
  const auto codes = some_codes();
  std::array<bf16, 16> entries{};
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = bf16(static_cast<float>(i) - 8);
  std::array<bf16, Rows * 128> x{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = bf16(static_cast<float>(static_cast<int>(i * 37 % 41) - 20));
  }
  __m512i block[Registers];
  std::array<std::byte, std::size_t{64} * Registers> held{};
  for (int r = 0; r < Registers; ++r) {
    const auto others = _mm512_set1_epi8(static_cast<char>(0x35 * r));
    block[r] = _mm512_xor_si512(_mm512_loadu_si512(codes.data()), others);
    _mm512_storeu_si512(held.data() + std::ptrdiff_t{64} * r, block[r]);
  }
  __m512 sums[Registers][Rows];
  pairs::products(pairs::table_of(entries.data()), block, x.data(), 128, sums);
  for (std::size_t r = 0; r < Registers; ++r) {
    for (std::size_t row = 0; row < Rows; ++row) {
      std::array<float, 16> lanes{};
      _mm512_storeu_ps(lanes.data(), sums[r][row]);
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        float sum = 0;
        for (std::size_t code = 0; code < 8; ++code) {
          const std::size_t word = 2 * lane + code / 4, place = code % 4 * 32 + word;
          const float weight =
              static_cast<float>(nibble(held.data() + 64 * r, 8 * lane + code) - 8);
          sum += weight * static_cast<float>(x[row * 128 + place]);
        }
        EXPECT_EQ(lanes[lane], sum) << Rows << " rows: " << r << ", " << row << ", " << lane;
      }
    }
  }
}
TEST(code_pairs, products_are_those_of_entries) {
  expect_products<1, 1>();
  expect_products<2, 2>();
  expect_products<2, 4>();
}

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
