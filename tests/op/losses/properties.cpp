// What the declarations of losses cannot say: exact zeros, long vocabularies and far logits, a
// product beside its logits, gradients beside differences, tokens beside their batch.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/losses.hpp>

#include "tests/support/far_logits.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera;

std::vector<float> numbers(std::size_t count, std::uint64_t seed, float scale = 1,
                           float shift = 0) {
  support::random_source random(seed);
  std::vector<float> all(count);
  for (float& each : all) each = scale * random.bell() + shift;
  return all;
}

std::vector<std::int32_t> classes(std::int64_t count, std::int64_t most, std::uint64_t seed) {
  support::random_source random(seed);
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<std::int32_t>(random.below(most)));
  return all;
}

/// Tokens with logits.
struct tokens {
  std::int64_t count, width;
  std::vector<float> logits;
  std::vector<std::int32_t> targets;

  tokens(std::int64_t rows, std::int64_t columns, float scale = 1, float shift = 0)
      : count(rows),
        width(columns),
        logits(numbers(static_cast<std::size_t>(rows * columns), 1, scale, shift)),
        targets(classes(rows, columns, 2)) {}

  cross_entropy_args args(float* loss) {
    return {.logits = view(logits.data(), {count, width}),
            .targets = view(targets.data(), {count}),
            .loss = view(loss, {1})};
  }
  float loss(const cross_entropy_options& options = {}, const context& where = {}) {
    float value = -1;
    throw_if_failed(fused_cross_entropy(args(&value), options, where));
    return value;
  }
  std::vector<float> gradient(const cross_entropy_options& options = {}) {
    std::vector<float> d_logits(logits.size());
    float d_loss = 1;
    cross_entropy_args given = args(nullptr);
    given.loss = {};
    given.d_loss = view(&d_loss, {1});
    given.d_logits = view(d_logits.data(), {count, width});
    throw_if_failed(fused_cross_entropy_backward(given, options));
    return d_logits;
  }
  /// The mean in double.
  double exact() const {
    double sum = 0;
    for (std::int64_t row = 0; row < count; ++row) {
      const std::span x(logits.data() + row * width, static_cast<std::size_t>(width));
      double most = -HUGE_VAL, powers = 0;
      for (const float each : x) most = std::fmax(most, static_cast<double>(each));
      for (const float each : x) powers += std::exp(static_cast<double>(each) - most);
      const auto target = static_cast<std::size_t>(targets[static_cast<std::size_t>(row)]);
      sum += std::log(powers) + most - static_cast<double>(x[target]);
    }
    return sum / static_cast<double>(count);
  }
};

TEST(fused_cross_entropy, is_exact_for_long_vocabularies_and_far_logits) {
  for (const float shift : {0.0f, -1e4f, 1e6f}) {
    tokens far(3, 128'256, 4, shift);
    const double exact = far.exact();
    EXPECT_NEAR(static_cast<double>(far.loss()), exact, 1e-6 * exact) << shift;
  }
}

TEST(fused_cross_entropy, and_its_gradients_are_right_for_far_and_masked_logits) {
  support::expect_right_far_logits();
}

TEST(fused_cross_entropy, has_the_same_loss_in_any_number_of_parts) {
  tokens some(7, 6000);
  const float whole = some.loss({.label_smoothing = 0.1, .z_loss = 1e-3});
  for (const std::int64_t parts : {2, 3, 8, 6000}) {
    EXPECT_NEAR(some.loss({.label_smoothing = 0.1, .z_loss = 1e-3, .world_size = parts}), whole,
                1e-6f * whole)
        << parts;
  }
}

TEST(fused_cross_entropy, has_gradients_that_sum_to_nothing_and_follow_differences) {
  tokens some(4, 33);
  const cross_entropy_options options{.reduction = loss_reduction::sum, .label_smoothing = 0.2};
  const std::vector<float> gradient = some.gradient(options);
  for (std::size_t row = 0; row < 4; ++row) {
    const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(33 * row);
    EXPECT_NEAR(std::accumulate(begin, begin + 33, 0.0), 0.0, 1e-6);
  }
  for (const std::size_t at : {std::size_t{0}, std::size_t{40}, gradient.size() - 1}) {
    const float before = some.logits[at], step = 0.0625f;
    some.logits[at] = before + step;
    const double above = static_cast<double>(some.loss(options));
    some.logits[at] = before - step;
    const double below = static_cast<double>(some.loss(options));
    some.logits[at] = before;
    EXPECT_NEAR((above - below) / (2 * static_cast<double>(step)),
                static_cast<double>(gradient[at]), 1e-3);
  }
}

TEST(fused_cross_entropy, may_leave_gradients_where_the_logits_were) {
  tokens some(5, 4100);
  const std::vector<float> apart = some.gradient();
  float d_loss = 1;
  cross_entropy_args args = some.args(nullptr);
  args.loss = {};
  args.d_loss = view(&d_loss, {1});
  args.d_logits = args.logits;
  throw_if_failed(fused_cross_entropy_backward(args));
  EXPECT_EQ(some.logits, apart);
}

TEST(fused_cross_entropy, of_a_token_does_not_depend_on_the_others) {
  tokens all(40, 700);
  std::vector<float> losses(40), alone(1);
  const cross_entropy_options options{.reduction = loss_reduction::none, .z_loss = 0.01};
  cross_entropy_args args = all.args(nullptr);
  args.loss = view(losses.data(), {40});
  throw_if_failed(fused_cross_entropy(args, options));
  for (const std::int64_t row : {0, 17, 39}) {
    throw_if_failed(fused_cross_entropy({.logits = view(all.logits.data() + row * 700, {1, 700}),
                                         .targets = view(all.targets.data() + row, {1}),
                                         .loss = view(alone.data(), {1})},
                                        options));
    EXPECT_EQ(losses[static_cast<std::size_t>(row)], alone[0]) << row;
  }
}

TEST(fused_cross_entropy, of_one_class_is_exactly_nothing) {
  tokens some(9, 1, 30);
  EXPECT_EQ(some.loss({.reduction = loss_reduction::sum}), 0.0f);
  EXPECT_EQ(some.loss({.label_smoothing = 0.25}), 0.0f);
  EXPECT_EQ(some.gradient(), std::vector<float>(9, 0.0f));
  std::vector<float> shares(9, 0.75f), weight{1.5f, -2};
  float loss = -1, of_product = -1, of_teacher = -1, entropy = -1;
  cross_entropy_args soft = some.args(&loss);
  soft.targets = {};
  soft.soft_targets = view(shares.data(), {9, 1});
  throw_if_failed(fused_cross_entropy(soft));
  throw_if_failed(fused_linear_cross_entropy({.hidden = view(some.logits.data(), {4, 2}),
                                              .lm_head_weight = view(weight.data(), {2, 1}),
                                              .targets = view(some.targets.data(), {4}),
                                              .loss = view(&of_product, {1})}));
  throw_if_failed(fused_kl_divergence({.student_logits = view(some.logits.data(), {8, 1}),
                                       .teacher_logits = view(some.logits.data() + 1, {8, 1}),
                                       .loss = view(&of_teacher, {1}),
                                       .teacher_entropy = view(&entropy, {1})}));
  for (const float each : {loss, of_product, of_teacher, entropy}) EXPECT_EQ(each, 0.0f);
}

TEST(fused_cross_entropy, of_tokens_in_four_axes_is_that_of_a_list_of_them) {
  constexpr std::int64_t width = 33, count = 2 * 3 * 2 * 5;
  tokens list(count, width);
  const cross_entropy_options options{.reduction = loss_reduction::none, .z_loss = 0.01};
  std::vector<float> losses(count), d_losses = numbers(count, 7), nested(count);
  cross_entropy_args args = list.args(nullptr);
  args.loss = view(losses.data(), {count});
  throw_if_failed(fused_cross_entropy(args, options));
  std::vector<float> gradient(list.logits.size()), of_nested(list.logits.size());
  const auto differentiate = [&](cross_entropy_args of, std::vector<float>& to) {
    of.d_logits = of.logits;
    of.d_logits.data = to.data();
    of.d_loss = of.loss;
    of.d_loss.data = d_losses.data();
    of.loss = {};
    throw_if_failed(fused_cross_entropy_backward(of, options));
  };
  differentiate(args, gradient);
  // The same memory with its axes in another order: [3, 5, 2, 2] of [2, 3, 2, 5].
  const auto turned = [](tensor_view flat, std::int64_t row) {
    flat.stride = {10 * row, row, 30 * row, 5 * row, 1};
    flat.extent = {3, 5, 2, 2, width};
    flat.rank = row == 1 ? 4 : 5;
    return flat;
  };
  args.logits = turned(args.logits, width);
  args.targets = turned(args.targets, 1);
  args.loss = turned(view(nested.data(), {count}), 1);
  throw_if_failed(fused_cross_entropy(args, options));
  EXPECT_EQ(nested, losses);
  differentiate(args, of_nested);
  EXPECT_EQ(of_nested, gradient);
}

TEST(fused_linear_cross_entropy, is_cross_entropy_of_the_product) {
  constexpr std::int64_t rows = 130, columns = 300, width = 290;
  tokens product(rows, width);
  std::vector<float> hidden = numbers(rows * columns, 3),
                     weight = numbers(columns * width, 4, 0.1f);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t v = 0; v < width; ++v) {
      double sum = 0;
      for (std::int64_t column = 0; column < columns; ++column) {
        sum += static_cast<double>(hidden[static_cast<std::size_t>(row * columns + column)]) *
               static_cast<double>(weight[static_cast<std::size_t>(column * width + v)]);
      }
      product.logits[static_cast<std::size_t>(row * width + v)] = static_cast<float>(sum);
    }
  }
  float loss = -1;
  throw_if_failed(
      fused_linear_cross_entropy({.hidden = view(hidden.data(), {rows, columns}),
                                  .lm_head_weight = view(weight.data(), {columns, width}),
                                  .targets = view(product.targets.data(), {rows}),
                                  .loss = view(&loss, {1})}));
  EXPECT_NEAR(static_cast<double>(loss), product.exact(), 5e-6 * product.exact());
}

TEST(fused_linear_cross_entropy, leaves_sums_that_gradients_may_be_given) {
  constexpr std::int64_t rows = 70, columns = 40, width = 700;
  std::vector<float> hidden = numbers(rows * columns, 3), weight = numbers(columns * width, 4),
                     sums(2 * rows, -1.0f);
  std::vector<std::int32_t> targets = classes(rows, width, 5);
  targets[3] = -100;
  float loss = -1, d_loss = 1;
  const linear_cross_entropy_options options{
      .label_smoothing = 0.1, .z_loss = 1e-3, .logits_soft_cap = 20.0};
  linear_cross_entropy_args args{.hidden = view(hidden.data(), {rows, columns}),
                                 .lm_head_weight = view(weight.data(), {columns, width}),
                                 .targets = view(targets.data(), {rows}),
                                 .loss = view(&loss, {1}),
                                 .logit_sums = view(sums.data(), {rows, 2})};
  throw_if_failed(fused_linear_cross_entropy(args, options));
  EXPECT_EQ(sums[6], 0.0f);
  EXPECT_EQ(sums[7], 0.0f);
  args.loss = {};
  args.d_loss = view(&d_loss, {1});
  // Nobody looks at the sums of a token that does not count.
  sums[6] = sums[7] = std::nanf("");
  std::vector<float> found[2][2];
  for (auto& [d_hidden, d_weight] : found) {
    d_hidden.resize(hidden.size()), d_weight.resize(weight.size());
    args.d_hidden = view(d_hidden.data(), {rows, columns});
    args.d_lm_head_weight = view(d_weight.data(), {columns, width});
    throw_if_failed(fused_linear_cross_entropy_backward(args, options));
    args.logit_sums = {};
  }
  for (int which = 0; which < 2; ++which) {
    double off = 0, most = 0;
    for (std::size_t i = 0; i < found[0][which].size(); ++i) {
      const auto again = static_cast<double>(found[1][which][i]);
      off = std::fmax(off, std::fabs(static_cast<double>(found[0][which][i]) - again));
      most = std::fmax(most, std::fabs(again));
    }
    EXPECT_LT(off, 2e-6 * most) << which;
  }
}

TEST(fused_kl_divergence, of_equal_logits_is_exactly_nothing) {
  for (const kl_direction direction : {kl_direction::forward, kl_direction::reverse}) {
    std::vector<float> logits = numbers(3 * 5000, 5, 8), gradient(logits.size(), -1.0f);
    float loss = -1, d_loss = 1;
    const kl_divergence_options options{.direction = direction, .temperature = 2.5};
    kl_divergence_args args{.student_logits = view(logits.data(), {3, 5000}),
                            .teacher_logits = view(logits.data(), {3, 5000}),
                            .loss = view(&loss, {1})};
    throw_if_failed(fused_kl_divergence(args, options));
    EXPECT_EQ(loss, 0.0f);
    args.loss = {};
    args.d_loss = view(&d_loss, {1});
    args.d_student_logits = view(gradient.data(), {3, 5000});
    throw_if_failed(fused_kl_divergence_backward(args, options));
    EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0.0f));
  }
}

TEST(fused_kl_divergence, with_its_entropy_is_cross_entropy_of_the_teacher) {
  constexpr std::int64_t rows = 6, width = 3000;
  tokens student(rows, width, 2);
  std::vector<float> teacher = numbers(rows * width, 6, 2), shares(teacher.size());
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t v = 0; v < width; ++v)
      sum += std::exp(static_cast<double>(teacher[row * width + v]));
    for (std::size_t v = 0; v < width; ++v) {
      shares[row * width + v] =
          static_cast<float>(std::exp(static_cast<double>(teacher[row * width + v])) / sum);
    }
  }
  float divergence = -1, entropy = -1, cross = -1;
  throw_if_failed(fused_kl_divergence({.student_logits = view(student.logits.data(), {rows, width}),
                                       .teacher_logits = view(teacher.data(), {rows, width}),
                                       .loss = view(&divergence, {1}),
                                       .teacher_entropy = view(&entropy, {1})}));
  throw_if_failed(fused_cross_entropy({.logits = view(student.logits.data(), {rows, width}),
                                       .soft_targets = view(shares.data(), {rows, width}),
                                       .loss = view(&cross, {1})}));
  EXPECT_NEAR(divergence + entropy, cross, 2e-6f * cross);
}

}  // namespace
