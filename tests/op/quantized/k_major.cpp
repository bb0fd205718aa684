// Weights whose codes lie k-major are those of axis col the other way round, bit for bit: packed,
// decoded, multiplied, and in their gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

namespace {

using namespace tessera;

/// Numbers of `rows` rows with `columns` of them, in lines that are three longer.
template <class Number>
struct numbers_of_weights {
  std::int64_t rows, columns;
  bool k_major;
  std::vector<Number> all = std::vector<Number>(static_cast<std::size_t>(lines() * line()), guard);

  static constexpr Number guard{99};
  std::int64_t lines() const { return k_major ? columns : rows; }
  std::int64_t line() const { return (k_major ? rows : columns) + 3; }
  Number& at(std::int64_t row, std::int64_t column) {
    return all[static_cast<std::size_t>(k_major ? column * line() + row : row * line() + column)];
  }
  tensor_view of_call() {
    tensor_view to = view(all.data(), {lines(), line() - 3});
    to.stride[0] = line();
    return to;
  }
  void expect_turned(numbers_of_weights& other) {
    std::int64_t different = 0, lost = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        different += std::memcmp(&at(row, column), &other.at(row, column), sizeof(Number)) != 0;
      }
    }
    for (std::int64_t i = 0; i < lines(); ++i) {
      for (std::int64_t gap = 1; gap <= 3; ++gap) {
        lost += all[static_cast<std::size_t>((i + 1) * line() - gap)] != guard;
      }
    }
    EXPECT_EQ(different, 0);
    EXPECT_EQ(lost, 0);
  }
};

/// Weights and what becomes of them by one axis.
struct packed_once {
  static constexpr std::int64_t batch = 3;
  quantized_options options;
  std::int64_t out, in;
  bool k_major = options.axis == weight_axis::k_major;
  std::int64_t groups = in / group_size_of(options);
  numbers_of_weights<std::uint32_t> words{out, (in * bits_of(options) + 31) / 32, k_major};
  numbers_of_weights<std::uint8_t> bytes{out, groups, k_major};
  numbers_of_weights<float> scales{out, groups, k_major}, zeros{out, groups, k_major};
  numbers_of_weights<float> d_scales{out, groups, k_major}, d_zeros{out, groups, k_major};
  std::vector<float> w = std::vector<float>(static_cast<std::size_t>(out * in)), decoded = w;
  std::vector<float> x = std::vector<float>(static_cast<std::size_t>(batch * in)), d_x = x;
  std::vector<float> y = std::vector<float>(static_cast<std::size_t>(batch * out));

  void run() {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
    const bool floats = has_float_scales(options.mode);
    const bool affine = options.mode == weight_mode::affine;
    weight_args weights{.w = view(w.data(), {out, in}),
                        .w_q = words.of_call(),
                        .scales = floats ? scales.of_call() : bytes.of_call(),
                        .zeros = affine ? zeros.of_call() : tensor_view{}};
    expect(prepack_quantized_weights(weights, options));
    weights.w = view(decoded.data(), {out, in});
    expect(dequantize(weights, options));
    quantized_matmul_args product{.x = view(x.data(), {batch, in}),
                                  .w_q = weights.w_q,
                                  .scales = weights.scales,
                                  .zeros = weights.zeros,
                                  .out = view(y.data(), {batch, out})};
    expect(quantized_matmul(product, options));
    product.d_out = product.out;
    product.out = {};
    product.d_x = view(d_x.data(), {batch, in});
    if (floats) product.d_scales = d_scales.of_call();
    if (affine) product.d_zeros = d_zeros.of_call();
    expect(quantized_matmul_backward(product, options));
  }
  static void expect(const status& done) { ASSERT_TRUE(done) << done.message(); }
};

void expect_same_weights(quantized_options options, std::int64_t out, std::int64_t in) {
  SCOPED_TRACE(std::string(weight_mode_names[static_cast<std::size_t>(options.mode)]) + " of " +
               std::to_string(bits_of(options)) + " bits, groups of " +
               std::to_string(group_size_of(options)) + ", " + std::to_string(out) + " x " +
               std::to_string(in));
  options.axis = weight_axis::col;
  packed_once by_row{.options = options, .out = out, .in = in};
  options.axis = weight_axis::k_major;
  packed_once by_column{.options = options, .out = out, .in = in};
  by_row.run();
  by_column.run();
  by_column.words.expect_turned(by_row.words);
  by_column.bytes.expect_turned(by_row.bytes);
  by_column.scales.expect_turned(by_row.scales);
  by_column.zeros.expect_turned(by_row.zeros);
  by_column.d_scales.expect_turned(by_row.d_scales);
  by_column.d_zeros.expect_turned(by_row.d_zeros);
  EXPECT_EQ(by_column.decoded, by_row.decoded);
  EXPECT_EQ(by_column.y, by_row.y);
  EXPECT_EQ(by_column.d_x, by_row.d_x);
  EXPECT_TRUE(std::ranges::any_of(by_row.y, [](float sum) { return sum != 0.0f; }));
}

TEST(k_major_weights, are_those_of_axis_col_the_other_way_round) {
  for (std::int64_t bits = 1; bits <= 8; ++bits) {
    for (std::int64_t size = 8; size <= 1024; size *= 2) {
      const quantized_options options{.bits = bits, .group_size = size};
      expect_same_weights(options, 5, size);
      expect_same_weights(options, 37, 3 * size);
    }
  }
  for (std::int64_t size = 8; size <= 1024; size *= 2) {
    expect_same_weights({.mode = weight_mode::nf4, .group_size = size}, 33, 2 * size);
  }
  for (const weight_mode mode :
       {weight_mode::mxfp4, weight_mode::mxfp8, weight_mode::nvfp4, weight_mode::nvfp8}) {
    expect_same_weights({.mode = mode}, 17, 96);
    expect_same_weights({.mode = mode}, 70, 512);
  }
}

/// Words of the packing of the definition, below each other.
TEST(k_major_weights, have_the_words_of_an_output_below_each_other) {
  std::array<float, 64> weights{};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(i < 32 ? i % 8 : 7 - i % 8);
  }
  std::array<std::uint32_t, 6> words{};
  std::array<float, 2> scales{}, zeros{};
  const quantized_options options{.bits = 3, .group_size = 32, .axis = weight_axis::k_major};
  const status packed = quantize({.w = view(weights.data(), {2, 32}),
                                  .w_q = view(words.data(), {3, 2}),
                                  .scales = view(scales.data(), {1, 2}),
                                  .zeros = view(zeros.data(), {1, 2})},
                                 options);
  ASSERT_TRUE(packed) << packed.message();
  constexpr std::array expected{0x88fac688u, 0x77053977u, 0xc688fac6u,
                                0x39770539u, 0xfac688fau, 0x05397705u};
  EXPECT_EQ(words, expected);
  EXPECT_EQ(scales, (std::array{1.0f, 1.0f}));
}

/// What has the shape of the other axis is refused, also where both have as many numbers.
TEST(k_major_weights, of_other_shapes_are_refused) {
  std::array<float, 64 * 64> w{};
  std::array<std::uint32_t, 64 * 8> words{};
  std::array<float, 64> scales{}, zeros{};
  const quantized_options options{.axis = weight_axis::k_major};
  const status refused = quantize({.w = view(w.data(), {64, 64}),
                                   .w_q = view(words.data(), {64, 8}),
                                   .scales = view(scales.data(), {1, 64}),
                                   .zeros = view(zeros.data(), {1, 64})},
                                  options);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.message(), "w_q: words is 64, w has 8");
}

}  // namespace
