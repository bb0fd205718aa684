// The microkernel against a double product, for every number of rows that the cutter makes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/microkernel_half.hpp>

#include "../../../support/random.hpp"
#include "../native.hpp"

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
void expect_product(int words, int chain) {
  constexpr int stride = 80;  // of A, at least `words`
  constexpr int columns = Vectors * vec::width;
  const auto a = random_values(Rows * stride, 1);
  const auto b = random_values(static_cast<std::size_t>(words * columns), 2);
  const auto before = random_values(Rows * columns, 3);
  const auto rescale = random_values(Rows, 4);
  std::vector<float> product(before), update(before), elsewhere(before.size(), -1.0f);
  using kernel = tessera::prim::microkernel<native_isa, f32_words, Rows, Vectors>;
  kernel::template multiply<stride>(a.data(), b.data(), words, chain, product.data(), columns);
  kernel::template rescale_and_add<stride>(a.data(), b.data(), words, chain, rescale.data(),
                                           update.data(), columns);
  kernel::template add<stride, columns>(a.data(), b.data(), words, before.data(), columns,
                                        elsewhere.data(), columns);
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
                         static_cast<double>(rescale[static_cast<std::size_t>(r)]);
      // Each of `words` additions may lose half a unit in the last place of the running sum.
      const double bound = (size + std::fabs(old)) * 0x1p-24 * (words + 2);
      EXPECT_NEAR(static_cast<double>(product[at]), sum, bound) << Rows << " rows, chain " << chain;
      EXPECT_NEAR(static_cast<double>(update[at]), old + sum, bound)
          << Rows << " rows, chain " << chain;
      const auto given = static_cast<double>(before[at]);
      EXPECT_NEAR(static_cast<double>(elsewhere[at]), given + sum,
                  bound + std::fabs(given) * 0x1p-24)
          << Rows << " rows";
    }
  }
}

template <int Rows>
void expect_products() {
  for (const int words : {1, 2, 7, 64, 80}) {
    for (const int chain : {1, 7, 32, tessera::prim::any_length}) {
      expect_product<Rows, 1>(words, chain);
      expect_product<Rows, 2>(words, chain);
    }
  }
}

TEST(microkernel, products_of_every_height) {
  expect_products<1>();
  expect_products<2>();
  expect_products<4>();
  expect_products<6>();
  expect_products<8>();
  expect_products<14>();
}

// Sums that begin with something, and what becomes of them.
template <class Words, int Rows, int Vectors, class Stride, class Expect>
void expect_sums(int words, const std::vector<float>& a, const std::vector<float>& b,
                 const std::vector<float>& start, const Expect& expect) {
  using kernel = tessera::prim::microkernel<native_isa, Words, Rows, Vectors>;
  constexpr int columns = Vectors * vec::width;
  std::vector<float> found(Rows * columns, -1.0f);
  kernel::template sum_from<Stride::value, columns>(
      [&](int r, int) { return vec::broadcast(start[static_cast<std::size_t>(r)]); }, a.data(),
      b.data(), words,
      [&](int r, int v, vec::reg sum) {
        vec::store(found.data() + r * columns + v * vec::width, sum);
      });
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < columns; ++c)
      expect(r, c, found[static_cast<std::size_t>(r * columns + c)]);
  }
}

TEST(microkernel, sums_begin_with_what_is_given) {
  constexpr int rows = 6, stride = 40, columns = 2 * vec::width;
  const auto a = random_values(rows * stride, 1), start = random_values(rows, 3);
  const auto b = random_values(stride * columns, 2);
  for (const int words : {0, 1, 2, 37}) {
    expect_sums<f32_words, rows, 2, std::integral_constant<int, stride>>(
        words, a, b, start, [&](int r, int c, float found) {
          double sum = static_cast<double>(start[static_cast<std::size_t>(r)]), size = 1;
          for (int k = 0; k < words; ++k) {
            const double term = static_cast<double>(a[static_cast<std::size_t>(r * stride + k)]) *
                                static_cast<double>(b[static_cast<std::size_t>(k * columns + c)]);
            sum += term;
            size += std::fabs(term);
          }
          EXPECT_NEAR(static_cast<double>(found), sum, size * 0x1p-24 * (words + 1));
        });
  }
}

#if defined(__AVX512VNNI__)
TEST(microkernel, sums_of_bytes_are_whole_numbers) {
  using byte_words = tessera::prim::byte_words<tessera::isa::avx512_vnni>;
  constexpr int rows = 14, stride = 40, columns = 2 * vec::width;
  tessera::support::random_source random(7);
  std::vector<float> a(rows * stride), b(stride * columns), start(rows);
  const auto random_word = [&] {
    std::uint32_t word = 0;
    for (int byte = 0; byte < 4; ++byte)
      word = word << 8 | static_cast<std::uint32_t>(random.below(256));
    return std::bit_cast<float>(word);
  };
  const auto draw = [&](std::vector<float>& to) {
    for (float& word : to) word = random_word();
  };
  draw(a), draw(b), draw(start);
  const auto byte_of = [](float word, int at) {
    return std::bit_cast<std::uint32_t>(word) >> 8 * at & 255u;
  };
  for (const int words : {1, 2, 37}) {
    expect_sums<byte_words, rows, 2, std::integral_constant<int, stride>>(
        words, a, b, start, [&](int r, int c, float found) {
          auto sum = std::bit_cast<std::uint32_t>(start[static_cast<std::size_t>(r)]);
          for (int k = 0; k < 4 * words; ++k) {
            const float of_a = a[static_cast<std::size_t>(r * stride + k / 4)];
            const float of_b = b[static_cast<std::size_t>(k / 4 * columns + c)];
            sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(byte_of(of_a, k % 4)) *
                                              static_cast<std::int32_t>(byte_of(of_b, k % 4)));
          }
          EXPECT_EQ(std::bit_cast<std::uint32_t>(found), sum) << r << ", " << c;
        });
  }
}
#endif

// What goes on beside a product is called as often as `steps_beside` says at least, evenly, and
// changes no bit.
template <int Rows>
void expect_steps(int words, int chain) {
  constexpr int stride = 80;
  constexpr int columns = 2 * vec::width;
  const auto a = random_values(Rows * stride, 1);
  const auto b = random_values(static_cast<std::size_t>(words * columns), 2);
  const auto before = random_values(Rows * columns, 3);
  const auto rescale = random_values(Rows, 4);
  using kernel = tessera::prim::microkernel<native_isa, f32_words, Rows, 2>;
  const auto product = [&](const auto&... beside) {
    std::vector<float> c(before);
    kernel::template multiply<stride>(a.data(), b.data(), words, chain, c.data(), columns,
                                      beside...);
    return c;
  };
  const auto update = [&](const auto&... beside) {
    std::vector<float> c(before);
    kernel::template rescale_and_add<stride>(a.data(), b.data(), words, chain, rescale.data(),
                                             c.data(), columns, beside...);
    return c;
  };
  const int least = tessera::prim::steps_beside(words, chain);
  const int sums = (words - 1) / chain + 1;
  int steps = 0;
  const auto count = [&] { ++steps; };
  EXPECT_EQ(product(count), product()) << words << " words, chain " << chain;
  EXPECT_GE(steps, least) << words << " words, chain " << chain;
  EXPECT_LE(steps, least + sums);
  steps = 0;
  EXPECT_EQ(update(count), update()) << words << " words, chain " << chain;
  EXPECT_GE(steps, least) << words << " words, chain " << chain;
  EXPECT_LE(steps, least + sums);
}

TEST(microkernel, steps_beside_a_product) {
  EXPECT_EQ(tessera::prim::steps_beside(1, 128), 0);
  EXPECT_EQ(tessera::prim::steps_beside(17, 128), 1);
  EXPECT_EQ(tessera::prim::steps_beside(18, 128), 2);
  EXPECT_EQ(tessera::prim::steps_beside(128, tessera::prim::any_length), 8);
  EXPECT_EQ(tessera::prim::steps_beside(256, 128), 16);
  for (const int words : {1, 2, 16, 17, 18, 33, 64, 80}) {
    for (const int chain : {1, 7, 32, tessera::prim::any_length}) {
      expect_steps<1>(words, chain);
      expect_steps<6>(words, chain);
      expect_steps<14>(words, chain);
    }
  }
}

// The columns of two microkernels: one of whole registers, one of them and a half one.
template <int Rows, int Vectors>
void expect_the_same_with_half_a_register() {
  if constexpr (tessera::prim::half_registers<native_isa>::present) {
    constexpr int words = 37, chain = 16;
    constexpr int used = Vectors * vec::width + vec::width / 2;  // columns
    constexpr int columns = (Vectors + 1) * vec::width;
    const auto a = random_values(Rows * words, 1);
    const auto b = random_values(words * columns, 2);
    const auto before = random_values(Rows * columns, 3);
    const auto rescale = random_values(Rows, 4);
    std::vector<float> whole(before), half(before);
    using whole_kernel = tessera::prim::microkernel<native_isa, f32_words, Rows, Vectors + 1>;
    using half_kernel = tessera::prim::microkernel_and_half<native_isa, Rows, Vectors>;
    whole_kernel::template rescale_and_add<words>(a.data(), b.data(), words, chain, rescale.data(),
                                                  whole.data(), columns);
    half_kernel::template rescale_and_add<words, columns, columns>(
        a.data(), b.data(), b.data() + Vectors * vec::width, words, chain, rescale.data(),
        half.data(), columns);
    for (int i = 0; i < Rows * columns; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(half[at], i % columns < used ? whole[at] : before[at]) << i;
    }
  }
}

TEST(microkernel, a_half_register_changes_no_bit) {
  expect_the_same_with_half_a_register<14, 0>();
  expect_the_same_with_half_a_register<14, 1>();
  expect_the_same_with_half_a_register<7, 2>();
  expect_the_same_with_half_a_register<4, 2>();
  expect_the_same_with_half_a_register<1, 1>();
}

TEST(microkernel, chains_of_a_product_are_even_and_as_few_as_can_be) {
  using tessera::prim::even_chain;
  EXPECT_EQ(even_chain(1, 96), 96);
  EXPECT_EQ(even_chain(96, 96), 96);
  EXPECT_EQ(even_chain(97, 96), 49);
  EXPECT_EQ(even_chain(128, 96), 64);
  EXPECT_EQ(even_chain(256, 96), 86);
  EXPECT_EQ(even_chain(256, tessera::prim::any_length), tessera::prim::any_length);
}

// Terms of equal size and sign: the rounding errors of a running sum grow with its length.
TEST(microkernel, short_chains_lose_fewer_digits) {
  constexpr int words = 1024;
  constexpr int columns = vec::width;
  using kernel = tessera::prim::microkernel<native_isa, f32_words, 1, 1>;
  const std::vector<float> a(words, 0.1f), b(words * columns, 1.0f);
  const double truth = words * static_cast<double>(0.1f);
  const auto error_of = [&](int chain) {
    std::vector<float> c(columns);
    kernel::multiply<words>(a.data(), b.data(), words, chain, c.data(), columns);
    return std::fabs(static_cast<double>(c[0]) - truth);
  };
  EXPECT_LT(error_of(64), 0.25 * error_of(tessera::prim::any_length));
}

TEST(rows_of_tile, makes_the_same_tiles_one_at_a_time) {
  for (int rows = 1; rows < 60; ++rows) {
    int next = 0;
    tessera::prim::for_each_row_tile<14>(rows, [&]<int TileRows>(int first) {
      ASSERT_EQ(first, next);
      const int of_tile = tessera::prim::rows_of_tile<14>(rows - next);
      ASSERT_EQ(of_tile, TileRows);
      int called = 0;
      tessera::prim::with_rows<14>(of_tile, [&]<int Rows>() { called = Rows; });
      ASSERT_EQ(called, TileRows);
      next += of_tile;
    });
    ASSERT_EQ(next, rows);
  }
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
