// Scales of a byte are what they stand for, however few rows of x meet them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

namespace {

using namespace tessera;

/// Rows of weights with all 256 scales, with and without those that stand for what is no normal
/// number, whose groups end within a block of codes.
struct scaled_weights {
  static constexpr std::int64_t out = 48, in = 288, most_rows = 2;
  quantized_options options;
  std::vector<std::uint32_t> words;
  std::vector<std::uint8_t> scales;
  std::vector<bf16> x;
  std::vector<float> decoded;
  float of_tensor;

  scaled_weights(const quantized_options& wanted, float tensor_scale)
      : options(wanted), decoded(out * in), of_tensor(tensor_scale) {
    for (std::uint32_t i = 0; i < out * in / 8; ++i) words.push_back(0x76543210u + i * 0x9e3779b9u);
    for (std::int64_t i = 0; i < out * in / group_size_of(options); ++i) {
      scales.push_back(static_cast<std::uint8_t>(i));
    }
    for (std::int64_t i = 0; i < most_rows * in; ++i) {
      x.push_back(bf16(std::cos(static_cast<float>(i))));
    }
    weight_args all = weights();
    all.w = view(decoded.data(), {out, in});
    const status done = dequantize(all, options);
    EXPECT_TRUE(done) << done.message();
  }
  weight_args weights() {
    weight_args all;
    all.w_q = view(words.data(), {out, in / 8});
    all.scales = view(scales.data(), {out, in / group_size_of(options)});
    if (options.mode == weight_mode::nvfp4) all.tensor_scale = view(&of_tensor, {1});
    return all;
  }
  void judge(std::int64_t m, std::int64_t n, float found) const {
    double sum = 0, size = 0;
    for (std::int64_t k = 0; k < in; ++k) {
      const auto own = static_cast<float>(x[static_cast<std::size_t>(m * in + k)]);
      const double term = static_cast<double>(own) *
                          static_cast<double>(decoded[static_cast<std::size_t>(n * in + k)]);
      sum += term, size += std::fabs(term);
    }
    if (!std::isfinite(sum)) {
      EXPECT_FALSE(std::isfinite(found)) << m << ", " << n;
    } else if (size < 1e37) {  // else sums may overflow on the way
      EXPECT_NEAR(static_cast<double>(found), sum, size * 0x1p-8 + 0x1p-120) << m << ", " << n;
    }
  }
};

/// The product with the first rows of x.
std::vector<bf16> product_of(scaled_weights& of, std::int64_t rows, const context& where = {}) {
  const weight_args weights = of.weights();
  std::vector<bf16> y(static_cast<std::size_t>(rows * of.out));
  const status done = quantized_matmul({.x = view(of.x.data(), {rows, of.in}),
                                        .w_q = weights.w_q,
                                        .scales = weights.scales,
                                        .tensor_scale = weights.tensor_scale,
                                        .out = view(y.data(), {rows, of.out})},
                                       of.options, where);
  EXPECT_TRUE(done) << done.message();
  return y;
}

/// `judge` of each format with scales of a byte.
template <class Judge>
void for_each_format(const Judge& judge) {
  const auto judge_one = [&](const quantized_options& options, float tensor_scale) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(options.mode) << ", " << tensor_scale);
    scaled_weights of(options, tensor_scale);
    judge(of);
  };
  judge_one({.mode = weight_mode::mxfp4}, 1);
  judge_one({.mode = weight_mode::mxfp4, .scale_encoding = mx_scale_encoding::int8}, 1);
  for (const float tensor_scale : {1.0f, 0.3f, 3e37f}) {
    judge_one({.mode = weight_mode::nvfp4}, tensor_scale);
  }
}

TEST(quantized_matmul, scales_of_a_byte_are_what_they_stand_for) {
  for_each_format([](scaled_weights& of) {
    for (std::int64_t rows = 1; rows <= of.most_rows; ++rows) {
      const std::vector<bf16> y = product_of(of, rows);
      for (std::int64_t at = 0; at < rows * of.out; ++at) {
        of.judge(at / of.out, at % of.out, static_cast<float>(y[static_cast<std::size_t>(at)]));
      }
    }
  });
}

// One row of x meets scales as they are, more rows meet floats that were made of them before.
TEST(quantized_matmul, scales_of_a_byte_give_a_row_the_same_bits_as_beside_another) {
  const context invariant{.policy = selection_policy{.promise = bits_promise::batch_invariant}};
  for_each_format([&](scaled_weights& of) {
    const std::vector<bf16> alone = product_of(of, 1, invariant);
    const std::vector<bf16> together = product_of(of, of.most_rows, invariant);
    for (std::size_t n = 0; n < alone.size(); ++n) {
      const auto own = static_cast<float>(alone[n]), other = static_cast<float>(together[n]);
      if (std::isnan(own) && std::isnan(other)) continue;
      EXPECT_EQ(alone[n].bits, together[n].bits) << n << ": " << own << ", " << other;
    }
  });
}

// An x of a single one gives a column of the weights as they are read elsewhere, but for its
// rounding.
TEST(quantized_matmul, scales_of_a_byte_are_the_floats_of_dequantize) {
  for_each_format([](scaled_weights& of) {
    for (std::int64_t k = 0; k < of.in; k += 15) {  // of every group
      for (std::int64_t i = 0; i < of.in; ++i) {
        of.x[static_cast<std::size_t>(i)] = bf16(i == k ? 1.0f : 0.0f);
      }
      const std::vector<bf16> y = product_of(of, 1);
      for (std::int64_t n = 0; n < of.out; ++n) {
        const auto row = of.decoded.begin() + n * of.in;
        const bool finite = std::all_of(row, row + of.in, [](float w) { return std::isfinite(w); });
        if (!finite) continue;  // zero times the others is NaN
        EXPECT_EQ(static_cast<float>(y[static_cast<std::size_t>(n)]),
                  static_cast<float>(bf16(row[k])))
            << n << ", " << k;
      }
    }
  });
}

}  // namespace
