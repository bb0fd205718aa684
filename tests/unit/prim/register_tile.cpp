// The register tile against a double product, for every number of rows that the cutter makes.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/register_tile.hpp>

#include "../../support/random.hpp"
#include "native.hpp"

namespace {

using tessera::test::native_isa;
using tessera::test::vec;
using f32_words = tessera::prim::f32_words<native_isa>;

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  tessera::support::random_source random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.bell();
  return values;
}

template <int Rows, int Vectors>
void expect_product(int words) {
  constexpr int stride = 80;  // of A, at least `words`
  constexpr int columns = Vectors * vec::width;
  const auto a = random_values(Rows * stride, 1);
  const auto b = random_values(static_cast<std::size_t>(words * columns), 2);
  const auto before = random_values(Rows * columns, 3);
  const auto row_scale = random_values(Rows, 4);
  std::vector<float> product(before), update(before);
  using tile = tessera::prim::register_tile<native_isa, f32_words, Rows, Vectors>;
  tile::template product<stride>(a.data(), b.data(), words, product.data(), columns);
  tile::template update<stride>(a.data(), b.data(), words, row_scale.data(), update.data(),
                                columns);
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      double sum = 0.0, size = 0.0;
      for (int k = 0; k < words; ++k) {
        const double term = static_cast<double>(a[static_cast<std::size_t>(r * stride + k)]) *
                            static_cast<double>(b[static_cast<std::size_t>(k * columns + c)]);
        sum += term;
        size += std::fabs(term);
      }
      const auto at = static_cast<std::size_t>(r * columns + c);
      const double old = static_cast<double>(before[at]) *
                         static_cast<double>(row_scale[static_cast<std::size_t>(r)]);
      // Each of `words` additions may lose half a unit in the last place of the running sum.
      const double bound = (size + std::fabs(old)) * 0x1p-24 * (words + 2);
      EXPECT_NEAR(static_cast<double>(product[at]), sum, bound) << Rows << " rows";
      EXPECT_NEAR(static_cast<double>(update[at]), old + sum, bound) << Rows << " rows";
    }
  }
}

template <int Rows>
void expect_products() {
  for (const int words : {0, 1, 2, 7, 64, 80}) {
    expect_product<Rows, 1>(words);
    expect_product<Rows, 2>(words);
  }
}

TEST(register_tile, products_of_every_height) {
  expect_products<1>();
  expect_products<2>();
  expect_products<4>();
  expect_products<6>();
  expect_products<8>();
  expect_products<14>();
}

TEST(for_each_row_tile, covers_every_row_once) {
  for (int rows = 0; rows < 60; ++rows) {
    int next = 0;
    tessera::prim::for_each_row_tile<14>(rows, [&]<int TileRows>(int first) {
      EXPECT_EQ(first, next);
      next += TileRows;
    });
    EXPECT_EQ(next, rows);
  }
}

}  // namespace
