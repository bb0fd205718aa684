// What mean pooling is besides a formula: packed equals separate, chunks equal slices, a gradient
// equals differences of the definition; empty sizes, masks that hide everything, large sums.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/mean_pooling.hpp>
#include <tessera/spec/problem_text.hpp>

#include "tests/reference/mean_pooling.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::mean_pooling_args;
using tessera::mean_pooling_op;
using tessera::view;

std::vector<float> bells(std::size_t count, std::uint64_t seed, float offset = 0.0f) {
  random_source random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.bell() + offset;
  return values;
}

TEST(pooling, packed_sequences_have_the_bits_of_separate_ones) {
  constexpr std::int64_t columns = 37;
  const std::vector<std::int32_t> offsets{0, 5, 5, 1300, 1301};
  const auto x = bells(1400 * columns, 1);
  std::vector<float> packed(4 * columns, -1.0f);
  ASSERT_TRUE(tessera::mean_pooling({.x = view(x.data(), {1400, columns}),
                                     .cu_seqlens = view(offsets.data(), {5}),
                                     .out = view(packed.data(), {4, columns})}));
  for (std::size_t n = 0; n < 4; ++n) {
    const std::int64_t length = offsets[n + 1] - offsets[n];
    std::vector<float> alone(columns, -1.0f);
    ASSERT_TRUE(
        tessera::mean_pooling({.x = view(x.data() + offsets[n] * columns, {1, length, columns}),
                               .out = view(alone.data(), {1, columns})}));
    for (std::size_t column = 0; column < columns; ++column) {
      EXPECT_EQ(packed[n * columns + column], alone[column]) << "sequence " << n;
    }
  }
}

TEST(pooling, chunks_have_the_bits_of_slices) {
  constexpr std::int64_t tokens = 70, heads = 3, columns = 8, chunk = 32;
  const auto x = bells(tokens * heads * columns, 2);
  std::vector<float> out(3 * heads * columns);
  ASSERT_TRUE(tessera::mean_pooling_chunks({.x = view(x.data(), {1, tokens, heads, columns}),
                                            .out = view(out.data(), {1, 3, heads, columns})},
                                           {.chunk_size = chunk}));
  for (std::int64_t c = 0; c < 3; ++c) {
    const std::int64_t length = std::min(chunk, tokens - c * chunk);
    std::vector<float> slice(heads * columns);
    ASSERT_TRUE(tessera::mean_pooling(
        {.x = view(x.data() + c * chunk * heads * columns, {1, length, heads * columns}),
         .out = view(slice.data(), {1, heads * columns})}));
    for (std::size_t at = 0; at < slice.size(); ++at) {
      EXPECT_EQ(out[static_cast<std::size_t>(c) * slice.size() + at], slice[at]);
    }
  }
}

TEST(pooling, entries_do_not_depend_on_the_batch) {
  constexpr std::int64_t tokens = 900, columns = 24;
  const auto x = bells(4 * tokens * columns, 3);
  std::vector<float> together(4 * columns), alone(columns);
  ASSERT_TRUE(tessera::mean_pooling(
      {.x = view(x.data(), {4, tokens, columns}), .out = view(together.data(), {4, columns})}));
  ASSERT_TRUE(
      tessera::mean_pooling({.x = view(x.data() + 2 * tokens * columns, {1, tokens, columns}),
                             .out = view(alone.data(), {1, columns})}));
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 2 * columns));
}

// The gradient of <r, mean_pooling(x)> against central differences of the definition in double.
TEST(pooling, gradients_agree_with_finite_differences) {
  for (const bool masked : {false, true}) {
    constexpr std::int64_t batch = 2, tokens = 7, columns = 3;
    std::vector<double> x(batch * tokens * columns);
    random_source random(4);
    for (double& value : x) value = static_cast<double>(random.bell());
    std::vector<float> weights(batch * tokens, 1.0f);
    for (float& weight : weights) weight = static_cast<float>(random.below(3));
    weights[0] = 1.0f;
    const auto r = bells(batch * columns, 5);
    std::vector<double> means(batch * columns);
    mean_pooling_args args{.x = view(x.data(), {batch, tokens, columns}),
                           .out = view(means.data(), {batch, columns})};
    if (masked) args.mask = view(weights.data(), {batch, tokens});
    const auto loss = [&] {
      const auto out = tessera::reference::mean_pooling<>(mean_pooling_op::mean_pooling, args);
      double sum = 0;
      for (std::size_t at = 0; at < r.size(); ++at) {
        sum += out.values[at] * static_cast<double>(r[at]);
      }
      return sum;
    };
    std::vector<float> d_x(x.size());
    mean_pooling_args back{.d_out = view(r.data(), {batch, columns}),
                           .d_x = view(d_x.data(), {batch, tokens, columns})};
    back.mask = args.mask;
    ASSERT_TRUE(tessera::mean_pooling_backward(back));
    constexpr double step = 1e-4;
    for (std::size_t at = 0; at < x.size(); ++at) {
      const double before = x[at];
      x[at] = before + step;
      const double above = loss();
      x[at] = before - step;
      const double below = loss();
      x[at] = before;
      EXPECT_NEAR(static_cast<double>(d_x[at]), (above - below) / (2 * step), 1e-6) << at;
    }
  }
}

TEST(pooling, nothing_to_average_gives_zero_and_no_gradient) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(2 * 3 * 5, nan), out(2 * 5, nan), d_x(2 * 3 * 5, nan);
  const std::vector<float> d_out(2 * 5, nan);
  const std::vector<std::uint8_t> mask(6, 0);
  ASSERT_TRUE(tessera::mean_pooling({.x = view(x.data(), {2, 3, 5}),
                                     .mask = view(mask.data(), {2, 3}),
                                     .out = view(out.data(), {2, 5})}));
  EXPECT_EQ(out, std::vector<float>(10, 0.0f));
  ASSERT_TRUE(tessera::mean_pooling_backward({.mask = view(mask.data(), {2, 3}),
                                              .d_out = view(d_out.data(), {2, 5}),
                                              .d_x = view(d_x.data(), {2, 3, 5})}));
  EXPECT_EQ(d_x, std::vector<float>(30, 0.0f));
  // No token at all, dense and packed; tokens that belong to no sequence.
  out.assign(10, nan);
  ASSERT_TRUE(
      tessera::mean_pooling({.x = view(x.data(), {2, 0, 5}), .out = view(out.data(), {2, 5})}));
  EXPECT_EQ(out, std::vector<float>(10, 0.0f));
  out.assign(10, nan);
  const std::vector<std::int32_t> offsets{0, 0, 0};
  ASSERT_TRUE(tessera::mean_pooling({.x = view(x.data(), {6, 5}),
                                     .cu_seqlens = view(offsets.data(), {3}),
                                     .out = view(out.data(), {2, 5})}));
  EXPECT_EQ(out, std::vector<float>(10, 0.0f));
  d_x.assign(30, nan);
  ASSERT_TRUE(tessera::mean_pooling_backward({.cu_seqlens = view(offsets.data(), {3}),
                                              .d_out = view(d_out.data(), {2, 5}),
                                              .d_x = view(d_x.data(), {6, 5})}));
  EXPECT_EQ(d_x, std::vector<float>(30, 0.0f));
}

TEST(pooling, empty_batches_and_columns_are_legal) {
  std::vector<float> memory(8);
  EXPECT_TRUE(tessera::mean_pooling(
      {.x = view(memory.data(), {0, 4, 2}), .out = view(memory.data(), {0, 2})}));
  EXPECT_TRUE(tessera::mean_pooling(
      {.x = view(memory.data(), {2, 4, 0}), .out = view(memory.data(), {2, 0})}));
  EXPECT_TRUE(tessera::mean_pooling_chunks(
      {.x = view(memory.data(), {1, 0, 2, 2}), .out = view(memory.data(), {1, 0, 2, 2})}));
}

TEST(pooling, the_mean_of_equal_tokens_is_the_token) {
  constexpr std::int64_t tokens = 100'003, columns = 2;
  const std::vector<float> x(tokens * columns, 1000.125f);
  std::vector<float> out(columns);
  ASSERT_TRUE(tessera::mean_pooling(
      {.x = view(x.data(), {1, tokens, columns}), .out = view(out.data(), {1, columns})}));
  for (const float value : out) EXPECT_NEAR(value, 1000.125f, 1000.125f * 1e-6f);
}

TEST(pooling, one_token_is_read_by_broadcasting) {
  std::vector<float> row{1.0f, 2.0f, 3.0f}, out(3);
  ASSERT_TRUE(tessera::mean_pooling(
      {.x = view(row.data(), {1, 5000, 3}, {0, 0, 1}), .out = view(out.data(), {1, 3})}));
  EXPECT_EQ(out, row);
}

TEST(pooling, a_plan_serves_other_offsets_and_refuses_other_shapes) {
  constexpr std::int64_t heads = 2, columns = 20;
  const auto x = bells(51 * heads * columns, 6);
  std::vector<float> out(100 * heads * columns);
  std::vector<std::int32_t> offsets{0, 20, 20, 33};  // 3 + 0 + 2 chunks
  const tessera::mean_pooling_options options{.chunk_size = 8};
  const auto args_of = [&](std::int64_t tokens, std::int64_t chunks) {
    return mean_pooling_args{.x = view(x.data(), {1, tokens, heads, columns}),
                             .cu_seqlens = view(offsets.data(), {4}),
                             .out = view(out.data(), {1, chunks, heads, columns})};
  };
  const auto problem = problem_of(args_of(50, 5), options, mean_pooling_op::mean_pooling_chunks);
  const auto made = tessera::plan(problem, {.threads = 2});
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(text_of(made->problem()), to_text(problem));
  ASSERT_TRUE(made->run(args_of(50, 5)));
  // Other offsets are another number of chunks, and legal; another number of tokens is not.
  offsets = {0, 33, 34, 35};
  ASSERT_TRUE(made->run(args_of(50, 7)));
  const auto refused = made->run(args_of(51, 7));
  EXPECT_EQ(refused.code(), tessera::status_code::invalid_argument);
  EXPECT_NE(refused.message().find("51"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("50"), std::string::npos) << refused.message();
  std::vector<std::byte> small(1);
  const bool needs = made->workspace_bytes() > small.size();
  EXPECT_EQ(made->run(args_of(50, 7), small).code() == tessera::status_code::workspace, needs);
}

TEST(pooling, problems_are_text_and_back) {
  for (const char* line :
       {"mean_pooling x=[8,2048,1024]bf16", "mean_pooling x=[8,2048,64]f32 mask=[8,2048]u8",
        "mean_pooling_backward x=[100,64]f16 cu_seqlens=[5]i32",
        "mean_pooling_chunks x=[1,4096,8,128]bf16 cu_seqlens=[5]i32 chunk_size=64"}) {
    const auto problem = tessera::parse_problem<tessera::mean_pooling_problem>(line);
    ASSERT_TRUE(problem) << problem.message();
    EXPECT_EQ(to_text(*problem), line);
    const auto what = tessera::explain(*problem);
    ASSERT_TRUE(what) << what.message();
    EXPECT_EQ(what->problem, line);
    EXPECT_FALSE(what->row.empty());
  }
  for (const char* line :
       {"mean_pooling x=[1,2,3]", "mean_pooling y=[1]f32", "mean_pooling x=[1,2,3]f32 x=[1,2,3]f32",
        "mean_pooling x=[1,2,3]f32 chunk_size=two"}) {
    EXPECT_FALSE(tessera::parse_problem<tessera::mean_pooling_problem>(line)) << line;
  }
  // Legal text, illegal shapes, up to the ends of the integers.
  for (const char* line :
       {"mean_pooling", "mean_pooling x=[1,2]f32", "mean_pooling x=[1,2,3]i32",
        "mean_pooling x=[-1,2,3]f32",
        "mean_pooling x=[9223372036854775807,9223372036854775807,3]f32",
        "mean_pooling x=[4,3]f32 cu_seqlens=[-9223372036854775808]i32",
        "mean_pooling_chunks x=[1,2,3,4]f32 chunk_size=-9223372036854775808",
        "mean_pooling x=[2,3,4]f32 chunk_size=8", "mean_pooling x=[2,3,4]f32 mask=[2,4]f32"}) {
    const auto problem = tessera::parse_problem<tessera::mean_pooling_problem>(line);
    ASSERT_TRUE(problem) << line << ": " << problem.message();
    EXPECT_FALSE(tessera::explain(*problem)) << line;
    EXPECT_FALSE(tessera::plan(*problem)) << line;
  }
  const auto vast = tessera::parse_problem<tessera::mean_pooling_problem>(
      "mean_pooling_chunks x=[1,9,1,4]f32 chunk_size=9223372036854775807");
  ASSERT_TRUE(vast);
  EXPECT_TRUE(tessera::explain(*vast));
}

}  // namespace
