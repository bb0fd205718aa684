// Tile registers in memory against the definition, and against the hardware where it is there.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/tile_access.hpp>
#include <tessera/prim/cpu/gemm/tiled_product.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim {
namespace {

/// Numbers of many sizes, denormals and what becomes one among them, rounded to bf16.
std::vector<float> words_of(std::mt19937& random, std::size_t count, int most_exponent) {
  std::uniform_real_distribution<float> mantissa(-2.0f, 2.0f);
  std::uniform_int_distribution<int> exponent(-most_exponent, most_exponent);
  std::vector<float> words(count);
  for (float& word : words) {
    const bf16 halves[2] = {bf16(std::ldexp(mantissa(random), exponent(random))),
                            bf16(std::ldexp(mantissa(random), exponent(random)))};
    std::memcpy(&word, halves, sizeof word);
  }
  return words;
}

float half_of(float word, int which) {
  bf16 halves[2];
  std::memcpy(static_cast<void*>(halves), &word, sizeof word);
  return static_cast<float>(halves[which]);
}

constexpr int a_stride = 40, b_stride = 32, c_stride = 48;

template <class Tiles, int RowTiles, int ColumnTiles, bool BStays = false>
std::vector<float> product_of(const std::vector<float>& a, const std::vector<float>& b,
                              std::vector<float> c, int words) {
  tile_product<Tiles, RowTiles, ColumnTiles, BStays> product;
  const tile_scope<Tiles> registers;
  const typename decltype(product)::operands from{a.data(), a_stride, b.data(), b_stride};
  product.template begin<true>(from, c.data(), c_stride);
  product.add(product.next(from), words - tile_width);
  product.finish();
  return c;
}

template <int RowTiles, int ColumnTiles>
void expect_product() {
  std::mt19937 random(RowTiles * 10 + ColumnTiles);
  constexpr int words = 32;
  const auto a = words_of(random, 32 * a_stride, 3), b = words_of(random, words * b_stride, 3);
  const std::vector<float> c(32 * c_stride, 0.5f);
  const auto found = product_of<emulated_tiles, RowTiles, ColumnTiles>(a, b, c, words);
  EXPECT_EQ(found, (product_of<emulated_tiles, RowTiles, ColumnTiles, true>(a, b, c, words)));
  for (int r = 0; r < 32; ++r) {
    for (int column = 0; column < c_stride; ++column) {
      const auto at = static_cast<std::size_t>(r * c_stride + column);
      double sum = 0.5, size = 0.5;
      if (r < 16 * RowTiles && column < 16 * ColumnTiles) {
        for (int k = 0; k < words; ++k) {
          for (int which : {0, 1}) {
            const double x = half_of(a[static_cast<std::size_t>(r * a_stride + k)], which) *
                             half_of(b[static_cast<std::size_t>(k * b_stride + column)], which);
            sum += x;
            size += std::fabs(x);
          }
        }
      }
      ASSERT_NEAR(found[at], sum, 1e-6 * size) << r << " " << column;
    }
  }
}

TEST(tiles, products_of_one_and_two_tiles_are_right) {
  expect_product<1, 1>();
  expect_product<1, 2>();
  expect_product<2, 1>();
  expect_product<2, 2>();
}

/// Columns [first, end) of panels; C has no rows behind the last.
template <product_kind Kind>
void expect_product_of_any_size(int rows, int first, int end) {
  SCOPED_TRACE(std::to_string(rows) + " rows, columns " + std::to_string(first) + " to " +
               std::to_string(end));
  using b_panels = panels<isa::avx512_bf16, 2>;
  constexpr int words = 48, begin = 16, columns = 80;
  std::mt19937 random(11);
  const auto padded = static_cast<std::size_t>((rows + 15) / 16 * 16);
  const auto a = words_of(random, padded * 64, 3);
  auto b = words_of(random, words * columns, 3);
  std::vector<float> c(static_cast<std::size_t>(rows * columns), 0.5f);
  {
    const tile_scope<emulated_tiles> registers;
    tiled_product<Kind, emulated_tiles>(a.data(), rows, 64, b_panels{b.data(), words, columns},
                                        {begin, words}, {first, end}, c.data(), columns);
  }
  for (int r = 0; r < rows; ++r) {
    for (int column = 0; column < columns; ++column) {
      const bool inside = column >= first && column < end;
      double sum = Kind == product_kind::add || !inside ? 0.5 : 0.0, size = 0.5;
      for (int k = begin; inside && k < words; ++k) {
        const float word = *b_panels{b.data(), words, columns}.at(k, column);
        for (int which : {0, 1}) {
          const double x =
              half_of(a[static_cast<std::size_t>(r * 64 + k)], which) * half_of(word, which);
          sum += x;
          size += std::fabs(x);
        }
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(r * columns + column)], sum, 1e-6 * size)
          << r << " " << column;
    }
  }
}

TEST(tiles, products_of_any_size_are_right) {
  for (const int rows : {1, 15, 16, 17, 32, 37, 48, 64, 75}) {
    for (const auto& [first, end] : {std::pair{0, 80}, {0, 16}, {32, 64}, {32, 80}, {64, 80}}) {
      expect_product_of_any_size<product_kind::add>(rows, first, end);
      expect_product_of_any_size<product_kind::overwrite>(rows, first, end);
    }
  }
}

/// Kernels zero no register that they have not used since `begin`.
template <class Tiles>
void expect_zeros_behind_begin() {
  const std::vector<float> ones(tile_rows * tile_width, 1.0f);
  auto stored = ones;
  const tile_scope<Tiles> registers;
  Tiles::template load<3>(ones.data(), 64);
  Tiles::begin(tile_shapes::full());
  Tiles::template store<3>(stored.data(), 64);
  EXPECT_EQ(stored, std::vector<float>(ones.size()));
}

TEST(tiles, registers_are_zeros_behind_their_shapes) {
  expect_zeros_behind_begin<emulated_tiles>();
  if (__builtin_cpu_supports("amx-bf16") && ask_for_tiles<void>()) {
    expect_zeros_behind_begin<hardware_tiles>();
  }
}

TEST(tiles, registers_in_memory_have_the_bits_of_the_hardware) {
  if (!__builtin_cpu_supports("amx-bf16") || !ask_for_tiles<void>()) {
    GTEST_SKIP() << "this process has no tile registers";
  }
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int most_exponent = round % 4 == 0 ? 64 : 3;
    const auto a = words_of(random, 32 * a_stride, most_exponent);
    const auto b = words_of(random, 32 * b_stride, most_exponent);
    const auto c = words_of(random, 32 * c_stride, most_exponent);
    const auto memory = product_of<emulated_tiles, 2, 2>(a, b, c, 32);
    const auto hardware = product_of<hardware_tiles, 2, 2>(a, b, c, 32);
    ASSERT_EQ(std::memcmp(memory.data(), hardware.data(), memory.size() * sizeof(float)), 0)
        << "round " << round;
    const auto stays = product_of<hardware_tiles, 2, 2, true>(a, b, c, 32);
    ASSERT_EQ(std::memcmp(memory.data(), stays.data(), memory.size() * sizeof(float)), 0)
        << "round " << round;
    const auto bytes = product_of<tiles_of_bytes<emulated_tiles>, 2, 2>(a, b, c, 32);
    const auto of_hardware = product_of<tiles_of_bytes<hardware_tiles>, 2, 2>(a, b, c, 32);
    ASSERT_EQ(std::memcmp(bytes.data(), of_hardware.data(), bytes.size() * sizeof(float)), 0)
        << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::prim
