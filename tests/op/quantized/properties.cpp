// What the declarations of quantised weights cannot say: where codes lie in their words, what a row
// of a batch owes to the others, and that packing, unpacking and multiplying speak of the same
// weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

namespace {

using namespace tessera;

/// Codes 0, 1, ... as weights: where every code occurs, the scale is 1 and the zero 0.
struct counted_codes {
  std::int64_t bits;
  std::int64_t count;
  std::vector<std::uint32_t> words;
};

TEST(quantized_weights, codes_lie_one_behind_the_other_from_the_lowest_bit) {
  for (const counted_codes& known : {
           counted_codes{3, 16, {0x88fac688u, 0x0000fac6u}},
           counted_codes{4, 16, {0x76543210u, 0xfedcba98u}},
           counted_codes{5, 32, {0x8a418820u, 0xc5a92839u, 0xca307b9au, 0x38bdab49u, 0xffbbcdebu}},
       }) {
    std::vector<float> weights;
    for (std::int64_t i = 0; i < known.count; ++i) {
      weights.push_back(static_cast<float>(i % (1 << known.bits)));
    }
    std::vector<float> decoded(weights.size()), scale(1), zero(1);
    std::vector<std::uint32_t> words(known.words.size());
    const quantized_options options{.bits = known.bits, .group_size = known.count};
    weight_args args{.w = view(weights.data(), {1, known.count}),
                     .w_q = view(words.data(), {1, static_cast<std::int64_t>(words.size())}),
                     .scales = view(scale.data(), {1, 1}),
                     .zeros = view(zero.data(), {1, 1})};
    const status packed = quantize(args, options);
    ASSERT_TRUE(packed) << packed.message();
    EXPECT_EQ(words, known.words) << known.bits;
    EXPECT_EQ(scale[0], 1.0f);
    EXPECT_EQ(zero[0], 0.0f);
    args.w = view(decoded.data(), {1, known.count});
    const status unpacked = dequantize(args, options);
    ASSERT_TRUE(unpacked) << unpacked.message();
    EXPECT_EQ(decoded, weights) << known.bits;
  }
}

/// Packed weights, and a batch of activations to multiply them with.
struct product_call {
  static constexpr std::int64_t out = 48;
  std::int64_t batch, in;
  quantized_options options;
  std::vector<float> w, x, y;
  std::vector<std::uint32_t> words;
  std::vector<std::uint8_t> scales;
  std::vector<float> float_scales, zeros;  ///< of affine weights

  product_call(std::int64_t rows, const quantized_options& wanted, std::int64_t columns = 96)
      : batch(rows),
        in(columns),
        options(wanted),
        w(static_cast<std::size_t>(out * in)),
        x(static_cast<std::size_t>(rows * in)),
        y(static_cast<std::size_t>(rows * out)),
        words(static_cast<std::size_t>(out * in * bits_of(wanted) / 32)),
        scales(static_cast<std::size_t>(out * in / group_size_of(wanted))),
        float_scales(scales.size()),
        zeros(scales.size()) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
  }

  std::int64_t stored_rows() const { return options.axis == weight_axis::col ? out : in; }
  std::int64_t stored_columns() const { return out * in / stored_rows(); }
  tensor_view codes() {
    return view(words.data(), {stored_rows(), stored_columns() * bits_of(options) / 32});
  }
  std::array<std::int64_t, 2> groups() const {
    return {stored_rows(), stored_columns() / group_size_of(options)};
  }
  tensor_view exponents() { return view(scales.data(), {groups()[0], groups()[1]}); }
  tensor_view scales_of_mode() {
    return has_float_scales(options.mode) ? view(float_scales.data(), {groups()[0], groups()[1]})
                                          : exponents();
  }
  tensor_view zeros_of_mode() {
    return options.mode == weight_mode::affine ? view(zeros.data(), {groups()[0], groups()[1]})
                                               : tensor_view{};
  }
  weight_args weights() {
    return {.w = view(w.data(), {out, in}),
            .w_q = codes(),
            .scales = scales_of_mode(),
            .zeros = zeros_of_mode()};
  }
  std::vector<float> decoded() {
    std::vector<float> all(w.size());
    weight_args back = weights();
    back.w = view(all.data(), {stored_rows(), stored_columns()});
    const status done = dequantize(back, options);
    EXPECT_TRUE(done) << done.message();
    return all;
  }
  void run(std::int64_t first, std::int64_t rows) {
    const quantized_matmul_args args{.x = view(x.data() + first * in, {rows, in}),
                                     .w_q = codes(),
                                     .scales = scales_of_mode(),
                                     .zeros = zeros_of_mode(),
                                     .out = view(y.data() + first * out, {rows, out})};
    const status done = quantized_matmul(args, options);
    ASSERT_TRUE(done) << done.message();
  }
};

constexpr std::array formats{
    quantized_options{.mode = weight_mode::mxfp8}, quantized_options{.mode = weight_mode::nvfp4},
    quantized_options{.mode = weight_mode::nvfp4, .axis = weight_axis::row}};

TEST(quantized_matmul, is_the_product_with_the_decoded_weights) {
  for (const quantized_options& options : formats) {
    product_call call(5, options);
    ASSERT_TRUE(prepack_quantized_weights(call.weights(), options));
    call.run(0, call.batch);
    const std::vector<float> decoded = call.decoded();
    const bool rows = options.axis == weight_axis::row;
    for (std::int64_t m = 0; m < call.batch; ++m) {
      for (std::int64_t n = 0; n < call.out; ++n) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < call.in; ++k) {
          const std::int64_t at = rows ? k * call.out + n : n * call.in + k;
          const double term =
              static_cast<double>(call.x[static_cast<std::size_t>(m * call.in + k)]) *
              static_cast<double>(decoded[static_cast<std::size_t>(at)]);
          sum += term;
          size += std::fabs(term);
        }
        EXPECT_NEAR(static_cast<double>(call.y[static_cast<std::size_t>(m * call.out + n)]), sum,
                    size * static_cast<double>(call.in) * 0x1p-24);
      }
    }
  }
}

/// Whether results are as precise as the largest sum of terms of their row lets them be: of all
/// rows together, and of each alone.
void judge_rows(product_call& call) {
  const std::vector<float> decoded = call.decoded();
  const auto judge = [&](std::int64_t m) {
    std::vector<double> sums(call.out);
    double most = 0;
    for (std::int64_t n = 0; n < call.out; ++n) {
      double size = 0;
      for (std::int64_t k = 0; k < call.in; ++k) {
        const double term = static_cast<double>(call.x[static_cast<std::size_t>(m * call.in + k)]) *
                            static_cast<double>(decoded[static_cast<std::size_t>(n * call.in + k)]);
        sums[static_cast<std::size_t>(n)] += term;
        size += std::fabs(term);
      }
      if (std::isfinite(size)) most = std::max(most, size);
    }
    for (std::int64_t n = 0; n < call.out; ++n) {
      const double sum = sums[static_cast<std::size_t>(n)];
      const auto y = static_cast<double>(call.y[static_cast<std::size_t>(m * call.out + n)]);
      if (std::isfinite(sum)) {
        EXPECT_NEAR(y, sum, most * static_cast<double>(call.in) * 0x1p-24 + 0x1p-120) << m;
      } else {
        EXPECT_TRUE(std::isnan(sum) ? std::isnan(y) : y == sum) << m << ": " << y << ", " << sum;
      }
    }
  };
  call.run(0, call.batch);
  for (std::int64_t m = 0; m < call.batch; ++m) judge(m);
  for (std::int64_t m = 0; m < call.batch; ++m) {
    call.run(m, 1);
    judge(m);
  }
}

/// Weights whose codes are multiplied as they are, on CPUs that can.
constexpr std::array whole_codes{
    quantized_options{.mode = weight_mode::mxfp4}, quantized_options{.bits = 4, .group_size = 32},
    quantized_options{.bits = 4, .group_size = 32, .affine_form = affine_weight_form::bias},
    quantized_options{.bits = 8, .group_size = 32}};

/// Numbers that sums of codes cannot hold before they are scaled, or hardly.
TEST(quantized_matmul, keeps_what_is_not_finite_huge_or_tiny) {
  for (const quantized_options& options : whole_codes) {
    SCOPED_TRACE(static_cast<int>(&options - whole_codes.data()));
    product_call call(6, options);
    ASSERT_TRUE(prepack_quantized_weights(call.weights(), options));
    const auto row = [&](std::int64_t m) { return call.x.data() + m * call.in; };
    row(0)[3] = INFINITY;
    row(1)[95] = NAN;
    row(2)[17] = 3e37f;
    for (int i = 0; i < call.in; ++i) row(3)[i] *= 1e-39f;
    row(4)[0] = INFINITY;
    row(4)[64] = -INFINITY;
    judge_rows(call);
  }
}

/// Sums of the largest numbers of a group, and rows of more than a block of codes.
TEST(quantized_matmul, adds_up_long_groups_and_rows) {
  for (const std::int64_t size : {32, 256, 512, 1024}) {
    const quantized_options options{.bits = 4, .group_size = size};
    product_call call(5, options, size == 32 ? 2080 : 2048);
    ASSERT_TRUE(prepack_quantized_weights(call.weights(), options));
    std::fill_n(call.x.begin(), call.in, 0x1.fffffep-1f);
    std::fill_n(call.x.begin() + call.in, call.in, -0x1.fffffep-1f);
    judge_rows(call);
  }
}

/// Sums of codes times x in fixed point are no floats where scales or zeros are as large as these.
TEST(quantized_matmul, multiplies_tiny_x_with_huge_weights) {
  for (const quantized_options& options : whole_codes) {
    SCOPED_TRACE(static_cast<int>(&options - whole_codes.data()));
    product_call call(6, options);
    ASSERT_TRUE(prepack_quantized_weights(call.weights(), options));
    std::ranges::fill(call.scales, std::uint8_t{227});
    if (options.affine_form == affine_weight_form::bias) {
      std::ranges::fill(call.float_scales, 1.0f);
      std::ranges::fill(call.zeros, 1e33f);
    } else {
      std::ranges::fill(call.float_scales, 1e32f);
    }
    for (std::int64_t m = 0; m < call.batch; ++m) {
      for (std::int64_t k = 0; k < call.in; ++k) {
        float& x = call.x[static_cast<std::size_t>(m * call.in + k)];
        x = m < 3 ? 1e-10f : x * 1e-10f;
      }
    }
    call.x[static_cast<std::size_t>(2 * call.in + 5)] = -INFINITY;
    judge_rows(call);
  }
}

/// Rows of kernels for few and for many rows of x have bits of their own.
const context invariant{.policy = selection_policy{.promise = bits_promise::batch_invariant}};

TEST(quantized_matmul, gives_a_row_of_the_batch_the_same_bits_as_alone) {
  for (const quantized_options& options :
       {quantized_options{.mode = weight_mode::mxfp4},
        quantized_options{.mode = weight_mode::nf4, .group_size = 8, .axis = weight_axis::row}}) {
    product_call call(300, options);
    std::vector<float> quantiles(call.scales.size());
    weight_args weights = call.weights();
    if (options.mode == weight_mode::nf4) weights.scales.type = dtype::f32;
    if (options.mode == weight_mode::nf4) weights.scales.data = quantiles.data();
    ASSERT_TRUE(quantize(weights, options));
    quantized_matmul_args args{.x = view(call.x.data(), {call.batch, call.in}),
                               .w_q = weights.w_q,
                               .scales = weights.scales,
                               .out = view(call.y.data(), {call.batch, call.out})};
    ASSERT_TRUE(quantized_matmul(args, options, invariant));
    for (const std::int64_t m : {0, 1, 255, 256, 299}) {
      std::vector<float> alone(call.out);
      args.x = view(call.x.data() + m * call.in, {1, call.in});
      args.out = view(alone.data(), {1, call.out});
      ASSERT_TRUE(quantized_matmul(args, options, invariant));
      const float* const together = call.y.data() + m * call.out;
      EXPECT_EQ(alone, std::vector<float>(together, together + call.out)) << m;
    }
  }
}

/// Products of groups: five matrices of weights of which x has rows of some.
TEST(quantized_grouped_matmul, gives_rows_the_bits_of_a_product_with_their_weights) {
  constexpr std::int64_t rows = 310, out = 48, in = 96, matrices = 3;
  constexpr std::int32_t most = INT32_MAX;
  // Rows of a group that has no weights here, a long group, none, and more than there are.
  const std::vector<std::int32_t> sizes{7, 300, -5, most};
  for (const quantized_options& format : formats) {
    quantized_options options = format;
    std::vector<float> x(rows * in), y(rows * out, 9.0f), alone(rows * out);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
    product_call first(1, options);
    const std::size_t words = first.words.size(), numbers = first.scales.size();
    std::vector<std::uint32_t> codes(matrices * words);
    std::vector<std::uint8_t> scales(matrices * numbers, 0x38);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = (static_cast<std::uint32_t>(i) * 2654435761u) & 0x6f6f6f6fu;
    }
    const auto of_all = [&](tensor_view of_matrix, void* data) {
      tensor_view all = of_matrix;
      all.data = data;
      all.rank = 3;
      for (std::size_t axis = 2; axis > 0; --axis) all.extent[axis] = of_matrix.extent[axis - 1];
      all.extent[0] = matrices;
      all.stride[0] = of_matrix.extent[0] * of_matrix.extent[1];
      all.stride[1] = of_matrix.extent[1];
      all.stride[2] = 1;
      return all;
    };
    const quantized_matmul_args args{
        .x = view(x.data(), {rows, in}),
        .w_q = of_all(first.codes(), codes.data()),
        .scales = of_all(first.exponents(), scales.data()),
        .out = view(y.data(), {rows, out}),
        .group_sizes = view(sizes.data(), {static_cast<std::int64_t>(sizes.size())})};
    options.group_offset = 1;
    const status done = quantized_grouped_matmul(args, options, invariant);
    ASSERT_TRUE(done) << done.message();
    options.group_offset = 0;
    for (const auto& [matrix, begin, end] :
         {std::array<std::int64_t, 3>{0, 7, 307}, std::array<std::int64_t, 3>{2, 307, rows}}) {
      quantized_matmul_args of_group{.x = view(x.data() + begin * in, {end - begin, in}),
                                     .w_q = first.codes(),
                                     .scales = first.exponents(),
                                     .out = view(alone.data() + begin * out, {end - begin, out})};
      of_group.w_q.data = codes.data() + static_cast<std::size_t>(matrix) * words;
      of_group.scales.data = scales.data() + static_cast<std::size_t>(matrix) * numbers;
      ASSERT_TRUE(quantized_matmul(of_group, options, invariant));
    }
    EXPECT_EQ(y, alone);  // the first seven rows are 0
  }
}

// Vectors of nothing have no memory.
TEST(quantized_grouped_matmul, without_groups_gives_zeros) {
  constexpr std::int64_t rows = 70, out = 48, in = 96;
  std::vector<std::uint32_t> no_words;
  std::vector<std::uint8_t> no_scales;
  std::vector<std::int32_t> no_sizes;
  for (const quantized_options& options : formats) {
    const bool by_column = options.axis == weight_axis::col;
    const std::int64_t lines = by_column ? out : in, columns = by_column ? in : out;
    std::vector<float> x(rows * in, 1.0f), y(rows * out, 9.0f);
    quantized_matmul_args args{
        .x = view(x.data(), {rows, in}),
        .w_q = view(no_words.data(), {0, lines, columns * bits_of(options) / 32}),
        .scales = view(no_scales.data(), {0, lines, columns / group_size_of(options)}),
        .out = view(y.data(), {rows, out}),
        .group_sizes = view(no_sizes.data(), {0})};
    const status done = quantized_grouped_matmul(args, options);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(y, std::vector<float>(y.size(), 0.0f));
    std::vector<float> d_x(rows * in, 9.0f);
    args.out = {};
    args.d_out = view(y.data(), {rows, out});
    args.d_x = view(d_x.data(), {rows, in});
    const status led_back = quantized_grouped_matmul_backward(args, options);
    ASSERT_TRUE(led_back) << led_back.message();
    EXPECT_EQ(d_x, std::vector<float>(d_x.size(), 0.0f));
  }
}

TEST(quantize, keeps_nan_where_codes_have_it_and_bounds_infinity) {
  std::vector<float> weights(32, 1.0f), decoded(32);
  weights[3] = NAN;
  weights[5] = -INFINITY;
  std::vector<std::uint32_t> words(8);
  std::vector<std::uint8_t> scales(1);
  weight_args args{.w = view(weights.data(), {1, 32}),
                   .w_q = view(words.data(), {1, 8}),
                   .scales = view(scales.data(), {1, 1})};
  const quantized_options options{.mode = weight_mode::mxfp8};
  ASSERT_TRUE(quantize(args, options));
  args.w = view(decoded.data(), {1, 32});
  ASSERT_TRUE(dequantize(args, options));
  EXPECT_EQ(scales[0], 127 + 127 - 8);  // of the largest float
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    if (i == 3) {
      EXPECT_TRUE(std::isnan(decoded[i]));
    } else {
      EXPECT_EQ(decoded[i], i == 5 ? -448.0f * 0x1p119f : 0.0f) << i;
    }
  }
}

/// Whichever row multiplies codes as they are: zeros come to sums by themselves, and infinity less
/// infinity is no number.
TEST(quantized_matmul, an_infinite_scale_makes_infinite_sums) {
  for (const affine_weight_form form : {affine_weight_form::zero, affine_weight_form::bias}) {
    const quantized_options options{.bits = 4, .group_size = 32, .affine_form = form};
    for (const std::int64_t rows : {1, 20}) {
      product_call call(rows, options);
      ASSERT_TRUE(prepack_quantized_weights(call.weights(), options));
      std::fill(call.x.begin(), call.x.end(), 1.0f);
      std::fill(call.words.begin(), call.words.begin() + 4, 0x99999999u);
      call.float_scales[0] = INFINITY;
      call.zeros[0] = 3;
      call.run(0, rows);
      for (std::int64_t m = 0; m < rows; ++m) {
        EXPECT_EQ(call.y[static_cast<std::size_t>(m * call.out)], INFINITY) << rows << ": " << m;
        EXPECT_TRUE(std::isfinite(call.y[static_cast<std::size_t>(m * call.out + 1)]));
      }
    }
  }
}

}  // namespace
