// Products of i8 with scales on the header path, with this program's instructions for bytes or its
// floats: exact for every byte, whatever shares a scale and wherever a tile ends.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/grouped_matmul/cpu/direct.hpp>

#include "tests/unit/prim/native.hpp"

namespace {

using namespace tessera;

/// Tiles of the smallest size: every loop over blocks goes round more than once.
struct row {
  static constexpr grouped_matmul_config config{
      .target = native_cpu_byte_backend,
      .block_m = register_rows(native_cpu_byte_backend),
      .block_n = register_columns(native_cpu_byte_backend),
      .block_k = 128};
};
/// Parts that share a scale lie in one block of the summed axis.
struct deep_row {
  static constexpr grouped_matmul_config config{.target = native_cpu_byte_backend};
};

/// Sums of 300 products times four are below 2^24: exact as floats, in any order.
struct byte_call {
  std::int64_t m, n, k;
  product_scales how;
  std::vector<std::int8_t> lhs, rhs;
  std::vector<float> lhs_scale, rhs_scale, out;

  byte_call(std::int64_t rows, std::int64_t columns, std::int64_t depth, product_scales scales)
      : m(rows), n(columns), k(depth), how(scales) {
    // Every pair of bytes: -128 times -128 too.
    for (std::int64_t at = 0; at < m * k; ++at) {
      lhs.push_back(static_cast<std::int8_t>(at * 37 % 256 - 128));
    }
    for (std::int64_t at = 0; at < n * k; ++at) {
      rhs.push_back(static_cast<std::int8_t>(at * 101 % 256 - 128));
    }
    for (std::int64_t at = 0; at < m * parts(); ++at) {
      lhs_scale.push_back(at % 3 == 0 ? 2.0f : -1.0f);
    }
    for (std::int64_t at = 0; at < scale_rows() * parts(); ++at) {
      rhs_scale.push_back(at % 2 == 0 ? 1.0f : 2.0f);
    }
    out.assign(static_cast<std::size_t>(m * n), -7.0f);
  }
  bool has_blocks() const { return how == product_scales::blocks; }
  std::int64_t parts() const { return has_blocks() ? (k + 127) / 128 : 1; }
  std::int64_t scale_rows() const { return has_blocks() ? (n + 127) / 128 : n; }

  scaled_matmul_args args() {
    return {.lhs = view(lhs.data(), {m, k}),
            .rhs = view(rhs.data(), {n, k}),
            .lhs_scale = view(lhs_scale.data(), {m, parts()}),
            .rhs_scale = view(rhs_scale.data(), {scale_rows(), parts()}),
            .out = view(out.data(), {m, n})};
  }
  double sum(std::int64_t at_row, std::int64_t column) const {
    const auto number = [](const auto& values, std::int64_t at) {
      return static_cast<double>(values[static_cast<std::size_t>(at)]);
    };
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t part = has_blocks() ? i / 128 : 0;
      const std::int64_t scale_row = has_blocks() ? column / 128 : column;
      sum += number(lhs, at_row * k + i) * number(lhs_scale, at_row * parts() + part) *
             number(rhs, column * k + i) * number(rhs_scale, scale_row * parts() + part);
    }
    return sum;
  }
};

template <class Row>
void expect_exact(std::int64_t m, std::int64_t n, std::int64_t k, product_scales how) {
  byte_call call(m, n, k, how);
  const status done = launch<Row>(call.args(), {.scales = how}, cpu{.threads = 2});
  ASSERT_TRUE(done) << done.message();
  for (std::int64_t at = 0; at < m; ++at) {
    for (std::int64_t column = 0; column < n; ++column) {
      ASSERT_EQ(static_cast<double>(call.out[static_cast<std::size_t>(at * n + column)]),
                call.sum(at, column))
          << m << " x " << n << " x " << k << ", row " << at << ", column " << column;
    }
  }
}

TEST(byte_products, are_exact_for_every_byte) {
  for (const product_scales how : {product_scales::blocks, product_scales::rows}) {
    for (const std::int64_t k : {1, 3, 64, 127, 128, 130, 250}) {
      expect_exact<row>(17, 37, k, how);
      expect_exact<deep_row>(17, 37, k, how);
    }
    expect_exact<row>(1, 1, 250, how);
    expect_exact<row>(31, 300, 250, how);
    expect_exact<deep_row>(300, 270, 250, how);
  }
}

TEST(byte_products, of_nothing_are_zeros) {
  byte_call call(3, 5, 0, product_scales::rows);
  ASSERT_TRUE(launch<row>(call.args(), {.scales = product_scales::rows}, cpu{}));
  EXPECT_EQ(call.out, std::vector<float>(15, 0.0f));
}

TEST(byte_products, are_what_epilogues_see) {
  byte_call plain(20, 40, 130, product_scales::blocks), halved(20, 40, 130, product_scales::blocks);
  ASSERT_TRUE(launch<row>(plain.args(), scaled_matmul_options{}, cpu{}));
  ASSERT_TRUE(launch<row>(halved.args(), scaled_matmul_options{}, cpu{}, epilogue::scale{0.5f}));
  for (float& value : plain.out) value *= 0.5f;
  EXPECT_EQ(halved.out, plain.out);
}

#if defined(__AVX512VNNI__)
TEST(byte_products, rows_take_nothing_else) {
  std::vector<float> x(64, 1.0f), out(64);
  const grouped_matmul_args floats{.lhs = view(x.data(), {8, 8}),
                                   .rhs = view(x.data(), {8, 8}),
                                   .out = view(out.data(), {8, 8})};
  EXPECT_EQ(launch<row>(floats).message(), "operands are f32, the row multiplies i8");
}
#endif

}  // namespace
