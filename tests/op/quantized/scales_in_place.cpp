// Kernels read scales and zeros where they lie: what stands between the rows of a tensor, behind it
// or in another row of it does not reach results.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

namespace {

using namespace tessera;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Affine weights of 4 bits whose rows of scales and zeros have NaN behind them, and one row that
/// is NaN.
struct weights_among_nan {
  static constexpr std::int64_t rows = 35, gap = 5, nan_row = 17;
  std::int64_t groups, group_size;
  std::vector<std::uint32_t> words;
  std::vector<float> scales, zeros, decoded;

  weights_among_nan(std::int64_t groups_of_row, std::int64_t size)
      : groups(groups_of_row),
        group_size(size),
        scales(static_cast<std::size_t>(rows * (groups + gap)), not_a_number),
        zeros(scales),
        decoded(static_cast<std::size_t>(rows * columns())) {
    for (std::int64_t i = 0; i < rows * columns() / 8; ++i) {
      words.push_back(0x3a76541fu + static_cast<std::uint32_t>(i) * 0x9e3779b9u);
    }
    for (std::int64_t at = 0; at < rows * groups; ++at) {
      if (at / groups == nan_row) continue;
      const auto place = static_cast<std::size_t>(at / groups * (groups + gap) + at % groups);
      scales[place] = std::sin(static_cast<float>(at + 1));
      zeros[place] = 4 + std::cos(static_cast<float>(at));
    }
    weight_args all = args();
    all.w = view(decoded.data(), {rows, columns()});
    const status done = dequantize(all, options());
    EXPECT_TRUE(done) << done.message();
  }
  std::int64_t columns() const { return groups * group_size; }
  quantized_options options() const { return {.bits = 4, .group_size = group_size}; }
  weight_args args() {
    const auto numbers = [&](std::vector<float>& of) {
      return view(of.data(), {rows, groups}, {groups + gap, 1});
    };
    return {.w_q = view(words.data(), {rows, columns() / 8}),
            .scales = numbers(scales),
            .zeros = numbers(zeros)};
  }
};

/// Each product of `batch` rows of x with a row of weights, beside its terms in double.
template <class Element>
void judge(weights_among_nan& of, std::int64_t batch) {
  std::vector<Element> x(static_cast<std::size_t>(batch * of.columns()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Element(std::cos(static_cast<float>(i)));
  std::vector<float> y(static_cast<std::size_t>(batch * of.rows));
  const weight_args weights = of.args();
  const status done = quantized_matmul({.x = view(x.data(), {batch, of.columns()}),
                                        .w_q = weights.w_q,
                                        .scales = weights.scales,
                                        .zeros = weights.zeros,
                                        .out = view(y.data(), {batch, of.rows})},
                                       of.options());
  ASSERT_TRUE(done) << done.message();
  for (std::int64_t at = 0; at < batch * of.rows; ++at) {
    const std::int64_t m = at / of.rows, n = at % of.rows;
    const float found = y[static_cast<std::size_t>(at)];
    if (n == of.nan_row) {
      EXPECT_TRUE(std::isnan(found)) << m;
      continue;
    }
    double sum = 0, size = 0;
    for (std::int64_t k = 0; k < of.columns(); ++k) {
      const auto own = static_cast<float>(x[static_cast<std::size_t>(m * of.columns() + k)]);
      const double term =
          static_cast<double>(own) *
          static_cast<double>(of.decoded[static_cast<std::size_t>(n * of.columns() + k)]);
      sum += term, size += std::fabs(term) + 16 * std::fabs(static_cast<double>(own));
    }
    EXPECT_NEAR(static_cast<double>(found), sum, size * 0x1p-18) << m << ", " << n;
  }
}

TEST(quantized_matmul, scales_and_zeros_of_a_row_meet_no_other_row) {
  for (const std::int64_t group_size : {8, 16, 32, 64, 128, 256}) {
    for (const std::int64_t groups : {1, 3, 4, 16, 17}) {  // which fill blocks of codes, or do not
      SCOPED_TRACE(testing::Message() << groups << " groups of " << group_size);
      weights_among_nan of(groups, group_size);
      for (const std::int64_t batch : {1, 2, 5}) {
        judge<bf16>(of, batch);
        judge<float>(of, batch);
      }
    }
  }
}

}  // namespace
