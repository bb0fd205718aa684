// The header path of quantised weights: the bits of the operations, and their refusals.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>
#include <tessera/quantized.hpp>

namespace {

using namespace tessera;

template <quantized_pass Pass>
struct native_row {
  static constexpr quantized_config config{.target = native_cpu_backend, .pass = Pass};
};
using quantizing = native_row<quantized_pass::quantize>;
using dequantizing = native_row<quantized_pass::dequantize>;
using multiplying = native_row<quantized_pass::forward>;
using going_back = native_row<quantized_pass::backward>;

TEST(quantized_header_path, packs_and_multiplies_as_the_operations_do) {
  constexpr std::int64_t out = 8, in = 64, batch = 3;
  std::vector<float> w(out * in), x(batch * in), decoded(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
  std::vector<std::uint32_t> words(out * in / 8), same_words(words.size());
  std::vector<float> scales(out), same_scales(out);
  const quantized_options options{.mode = weight_mode::nf4};
  weight_args weights{.w = view(w.data(), {out, in}),
                      .w_q = view(words.data(), {out, in / 8}),
                      .scales = view(scales.data(), {out, 1})};
  ASSERT_TRUE(launch<quantizing>(weights, options));
  weight_args same = weights;
  same.w_q = view(same_words.data(), {out, in / 8});
  same.scales = view(same_scales.data(), {out, 1});
  ASSERT_TRUE(quantize(same, options));
  EXPECT_EQ(words, same_words);
  EXPECT_EQ(scales, same_scales);

  weights.w = view(decoded.data(), {out, in});
  ASSERT_TRUE(launch<dequantizing>(weights, options, {.threads = 2}));
  std::vector<float> y(batch * out), d_x(x.size());
  quantized_matmul_args args{.x = view(x.data(), {batch, in}),
                             .w_q = weights.w_q,
                             .scales = weights.scales,
                             .out = view(y.data(), {batch, out})};
  ASSERT_TRUE(launch<multiplying>(args, options));
  double sum = 0, size = 0;
  for (std::size_t k = 0; k < in; ++k) {
    const double term = static_cast<double>(x[k]) * static_cast<double>(decoded[k]);
    sum += term;
    size += std::fabs(term);
  }
  EXPECT_NEAR(static_cast<double>(y[0]), sum, size * in * 0x1p-24);
  args.out = {};
  args.d_out = view(y.data(), {batch, out});
  args.d_x = view(d_x.data(), {batch, in});
  EXPECT_TRUE(launch<going_back>(args, options));
  EXPECT_EQ(launch<multiplying>(args, options).message(),
            "out: is absent, quantized_matmul needs x, out, w_q and scales");
}

}  // namespace
