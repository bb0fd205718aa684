// Cross entropy of logits far from 0, and beside masked ones: the loss and the gradients of long
// rows against double, where the calls of a test program run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/losses.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {

/// Two tokens of one element type.
template <class Element>
class far_logits {
  static constexpr std::int64_t rows = 2;

 public:
  /// `logit(row, class)`.
  template <class Logit>
  far_logits(std::int64_t width, const Logit& logit)
      : width_(width), targets_{static_cast<std::int32_t>(width - 1), 0} {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t v = 0; v < width; ++v) {
        // Masked classes are in front of the others in one row, and behind them in the other.
        logits_.push_back(Element(logit(row == 0 ? v : width - 1 - v)));
      }
    }
  }

  /// Runs the loss with smoothed labels, and that of a product whose bias is a row.
  void expect_right_smoothed() {
    constexpr double smoothing = 0.1;
    constexpr std::int64_t columns = 8;
    float loss = -1, of_product = -1;
    std::vector<Element> hidden(columns), weight(static_cast<std::size_t>(columns * width_));
    const cross_entropy_args row{.logits = view(logits_.data(), {1, width_}),
                                 .targets = view(targets_.data(), {1}),
                                 .loss = view(&loss, {1})};
    const linear_cross_entropy_args product{
        .hidden = view(hidden.data(), {1, columns}),
        .lm_head_weight = view(weight.data(), {columns, width_}),
        .lm_head_bias = view(logits_.data(), {width_}),
        .targets = view(targets_.data(), {1}),
        .loss = view(&of_product, {1})};
    run("fused_cross_entropy", row, cross_entropy_options{.label_smoothing = smoothing});
    run("fused_linear_cross_entropy", product,
        linear_cross_entropy_options{.label_smoothing = smoothing});
    const double exact = smoothed_loss(smoothing);
    EXPECT_NEAR(static_cast<double>(loss), exact, 1e-5 * (1 + exact));
    EXPECT_NEAR(static_cast<double>(of_product), exact, 1e-5 * (1 + exact));
  }

  /// Runs both directions.
  void expect_right() {
    float loss = -1, d_loss = 1;
    std::vector<Element> gradient(logits_.size(), Element(-1.0f));
    const auto whole = [&](std::vector<Element>& all) { return view(all.data(), {rows, width_}); };
    const cross_entropy_args forward{.logits = whole(logits_),
                                     .targets = view(targets_.data(), {rows}),
                                     .loss = view(&loss, {1})};
    const cross_entropy_args backward{.logits = whole(logits_),
                                      .targets = view(targets_.data(), {rows}),
                                      .d_loss = view(&d_loss, {1}),
                                      .d_logits = whole(gradient)};
    run("fused_cross_entropy", forward, cross_entropy_options{});
    run("fused_cross_entropy_backward", backward, cross_entropy_options{});
    double mean = 0;
    for (std::int64_t row = 0; row < rows; ++row) mean += expect_gradient(row, gradient) / rows;
    EXPECT_NEAR(static_cast<double>(loss), mean, 4e-6 * (1 + mean));
  }

 private:
  template <class Args, class Options>
  static void run(const char* name, const Args& args, const Options& options) {
    const found_operation known = operation_named(name);
    const status done = call_here(*known.kind, {known.op, tensors_of(args), &options});
    ASSERT_TRUE(done) << done.message();
  }

  static double number(Element x) { return static_cast<double>(static_cast<float>(x)); }

  /// Of row 0, in double.
  double smoothed_loss(double smoothing) const {
    double most = -HUGE_VAL, sum = 0, differences = 0;
    const auto width = static_cast<std::size_t>(width_);
    for (std::size_t v = 0; v < width; ++v) most = std::fmax(most, number(logits_[v]));
    for (std::size_t v = 0; v < width; ++v) {
      sum += std::exp(number(logits_[v]) - most);
      differences += number(logits_[v]) - most;
    }
    const double elsewhere = smoothing / static_cast<double>(width_ - 1);
    const double of_target = number(logits_[static_cast<std::size_t>(targets_[0])]) - most;
    return std::log(sum) - (1 - smoothing - elsewhere) * of_target - elsewhere * differences +
           (1 - smoothing) * std::log(1 - smoothing) + smoothing * std::log(elsewhere);
  }

  /// The loss of the row.
  double expect_gradient(std::int64_t row, const std::vector<Element>& gradient) const {
    const auto begin = static_cast<std::size_t>(row * width_);
    const auto target = static_cast<std::size_t>(targets_[static_cast<std::size_t>(row)]);
    double most = -HUGE_VAL, sum = 0;
    std::vector<double> powers;
    for (std::int64_t v = 0; v < width_; ++v)
      most = std::fmax(most, number(logits_[begin + static_cast<std::size_t>(v)]));
    for (std::int64_t v = 0; v < width_; ++v) {
      powers.push_back(std::exp(number(logits_[begin + static_cast<std::size_t>(v)]) - most));
      sum += powers.back();
    }
    // Rounding of the element, and of f16 below its normal numbers.
    const double unit = sizeof(Element) == 4 ? 6e-6 : std::is_same_v<Element, f16> ? 6e-4 : 4.5e-3;
    const double least = std::is_same_v<Element, f16> ? 6e-8 : 1e-30;
    std::int64_t wrong = 0;
    for (std::size_t v = 0; v < powers.size(); ++v) {
      const double share = powers[v] / sum, of_target = v == target ? 1 : 0;
      const double off = number(gradient[begin + v]) - (share - of_target) / rows;
      if (!(std::fabs(off) <= unit * (share + of_target) / rows + least)) ++wrong;
    }
    EXPECT_EQ(wrong, 0) << "gradients of row " << row;
    return std::log(sum) - (number(logits_[begin + target]) - most);
  }

  std::int64_t width_;
  std::vector<Element> logits_;
  std::vector<std::int32_t> targets_;
};

/// Rows of so many classes: all of them far from 0, the same or not, and those of which most are
/// masked, or all.
template <class Element>
void expect_right_far_logits(std::int64_t width) {
  const auto expect = [&](const std::string& what, const auto& logit) {
    SCOPED_TRACE(what + " of " + std::to_string(width));
    far_logits<Element>(width, logit).expect_right();
  };
  random_source random(7);
  for (const float shift : {-200.0f, 200.0f}) {
    expect("random + " + std::to_string(shift),
           [&](std::int64_t) { return 4 * random.bell() + shift; });
  }
  expect("all -100", [](std::int64_t) { return -100.0f; });
  std::vector<float> masks{-HUGE_VALF};
  if (std::is_same_v<Element, f16>) {
    masks.push_back(-65504.0f);
  } else {
    // The least number of bf16 is one of f32.
    masks.insert(masks.end(), {-1e10f, -1e30f, -0x1.fep127f});
  }
  if (sizeof(Element) == 4) masks.push_back(std::numeric_limits<float>::lowest());
  for (const float mask : masks) {
    expect("behind " + std::to_string(mask),
           [&](std::int64_t v) { return v < width * 25 / 32 ? mask : 1.0f; });
    if (mask == -HUGE_VALF) continue;
    far_logits<Element>(width, [&](std::int64_t v) {
      return v < width * 25 / 32 ? mask : 1.0f;
    }).expect_right_smoothed();
    expect("all " + std::to_string(mask), [&](std::int64_t) { return mask; });
  }
}

/// Rows that one block has, and several, of each type.
inline void expect_right_far_logits() {
  for (const std::int64_t width : {5000, 40000, 150000}) {
    expect_right_far_logits<bf16>(width);
    expect_right_far_logits<f16>(width);
    expect_right_far_logits<float>(width);
  }
}

}  // namespace tessera::support
