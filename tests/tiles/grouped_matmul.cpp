// The header path on rows of AMX with the smallest tiles: every loop over blocks goes round more
// than once, and ends in parts of tiles.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/grouped_matmul/cpu/direct.hpp>

namespace {

using namespace tessera;

struct bf16_row {
  static constexpr grouped_matmul_config config{.target = backend::cpu_amx_bf16,
                                                .type = dtype::bf16,
                                                .block_m = 32,
                                                .block_n = 32,
                                                .block_k = 64};
};
struct byte_row {
  static constexpr grouped_matmul_config config{.target = backend::cpu_amx_bf16,
                                                .type = dtype::i8,
                                                .block_m = 64,
                                                .block_n = 32,
                                                .block_k = 256};
};

/// rows, columns, depth.
struct size {
  std::int64_t m, n, k;
  std::string text() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
  }
};
constexpr size sizes[] = {{1, 1, 1},    {16, 32, 64},   {17, 33, 65},    {32, 64, 128},
                          {33, 31, 96}, {70, 100, 300}, {130, 40, 1030}, {3, 600, 257}};

/// Whole numbers: sums are exact, in any order, and their roundings are known.
template <class Element>
std::vector<Element> numbers(std::int64_t count, int most, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-most, most);
  std::vector<Element> drawn;
  for (std::int64_t at = 0; at < count; ++at) {
    drawn.push_back(static_cast<Element>(static_cast<float>(number(random))));
  }
  return drawn;
}
template <class Element>
float at(const std::vector<Element>& from, std::int64_t place) {
  return static_cast<float>(from[static_cast<std::size_t>(place)]);
}

/// out[i, j] = sum of term(i, j, k), for all i and j.
template <class Element, class Term>
void expect_sums(const std::vector<Element>& out, size of, const Term& term) {
  for (std::int64_t i = 0; i < of.m; ++i) {
    for (std::int64_t j = 0; j < of.n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < of.k; ++k) sum += term(i, j, k);
      ASSERT_EQ(at(out, i * of.n + j), static_cast<float>(Element(sum))) << i << ", " << j;
    }
  }
}

template <class Result>
void expect_products(size of, bool transposed) {
  SCOPED_TRACE(of.text() + (transposed ? ", transposed" : ""));
  const auto lhs = numbers<bf16>(of.m * of.k, 8, 1), rhs = numbers<bf16>(of.k * of.n, 8, 2);
  std::vector<Result> out(static_cast<std::size_t>(of.m * of.n));
  const grouped_matmul_args args{
      .lhs = view(lhs.data(), {of.m, of.k}),
      .rhs = transposed ? view(rhs.data(), {of.n, of.k}) : view(rhs.data(), {of.k, of.n}),
      .out = view(out.data(), {of.m, of.n})};
  const status done = launch<bf16_row>(args, {.transpose_rhs = transposed}, cpu{.threads = 2});
  ASSERT_TRUE(done) << done.message();
  expect_sums(out, of, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    return at(lhs, i * of.k + k) * at(rhs, transposed ? j * of.k + k : k * of.n + j);
  });
}

TEST(header_path, products_of_bf16_are_right_on_tiles) {
  for (const size& of : sizes) {
    for (const bool transposed : {false, true}) {
      expect_products<float>(of, transposed);
      expect_products<bf16>(of, transposed);
    }
  }
}

void expect_gradients(size of, bool transposed) {
  SCOPED_TRACE(of.text() + (transposed ? ", transposed" : ""));
  const auto lhs = numbers<bf16>(of.m * of.k, 8, 3), rhs = numbers<bf16>(of.k * of.n, 8, 4);
  const auto d_out = numbers<bf16>(of.m * of.n, 8, 5);
  std::vector<bf16> d_lhs(lhs.size()), d_rhs(rhs.size());
  const auto weights = [&](auto* data) {
    return transposed ? view(data, {of.n, of.k}) : view(data, {of.k, of.n});
  };
  const grouped_matmul_args args{.lhs = view(lhs.data(), {of.m, of.k}),
                                 .rhs = weights(rhs.data()),
                                 .d_out = view(d_out.data(), {of.m, of.n}),
                                 .d_lhs = view(d_lhs.data(), {of.m, of.k}),
                                 .d_rhs = weights(d_rhs.data())};
  const status done = launch<bf16_row>(args, {.transpose_rhs = transposed}, cpu{.threads = 2});
  ASSERT_TRUE(done) << done.message();
  const auto weight_at = [&](std::int64_t k, std::int64_t n) {
    return transposed ? n * of.k + k : k * of.n + n;
  };
  expect_sums(d_lhs, {of.m, of.k, of.n}, [&](std::int64_t i, std::int64_t k, std::int64_t n) {
    return at(d_out, i * of.n + n) * at(rhs, weight_at(k, n));
  });
  const size of_rhs = transposed ? size{of.n, of.k, of.m} : size{of.k, of.n, of.m};
  expect_sums(d_rhs, of_rhs, [&](std::int64_t row, std::int64_t column, std::int64_t m) {
    const std::int64_t k = transposed ? column : row, n = transposed ? row : column;
    return at(lhs, m * of.k + k) * at(d_out, m * of.n + n);
  });
}

TEST(header_path, gradients_of_products_are_right_on_tiles) {
  for (const size& of : sizes) {
    for (const bool transposed : {false, true}) expect_gradients(of, transposed);
  }
}

/// Scales are powers of two, and sums below 2^24.
void expect_byte_products(size of, product_scales how) {
  const bool blocks = how == product_scales::blocks;
  SCOPED_TRACE(of.text() + (blocks ? ", scales of blocks" : ", scales of rows"));
  const auto lhs = numbers<std::int8_t>(of.m * of.k, 127, 6);
  const auto rhs = numbers<std::int8_t>(of.n * of.k, 127, 7);
  const std::int64_t parts = blocks ? (of.k + 127) / 128 : 1;
  const std::int64_t scale_rows = blocks ? (of.n + 127) / 128 : of.n;
  const auto scales = [](std::int64_t count) {
    std::vector<float> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(i % 3 == 0 ? 0.5f : -1.0f);
    return made;
  };
  const std::vector<float> lhs_scale = scales(of.m * parts);
  const std::vector<float> rhs_scale = scales(scale_rows * parts);
  std::vector<float> out(static_cast<std::size_t>(of.m * of.n));
  const scaled_matmul_args args{.lhs = view(lhs.data(), {of.m, of.k}),
                                .rhs = view(rhs.data(), {of.n, of.k}),
                                .lhs_scale = view(lhs_scale.data(), {of.m, parts}),
                                .rhs_scale = view(rhs_scale.data(), {scale_rows, parts}),
                                .out = view(out.data(), {of.m, of.n})};
  const status done = launch<byte_row>(args, {.scales = how}, cpu{.threads = 2});
  ASSERT_TRUE(done) << done.message();
  expect_sums(out, of, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const std::int64_t part = blocks ? k / 128 : 0;
    return at(lhs, i * of.k + k) * at(rhs, j * of.k + k) * at(lhs_scale, i * parts + part) *
           at(rhs_scale, (blocks ? j / 128 : j) * parts + part);
  });
}

TEST(header_path, products_of_bytes_are_exact_on_tiles) {
  for (const size& of : sizes) {
    expect_byte_products(of, product_scales::rows);
    expect_byte_products(of, product_scales::blocks);
  }
  // Whole numbers of longer sums do not fit into 32 bits.
  expect_byte_products({2, 3, (1 << 16) + 100}, product_scales::rows);
}

}  // namespace
