// What gradients are judged by, beside central differences of what their forward calls are judged
// by: both in double, neither a kernel's. A program has calls of its own:
//   INSTANTIATE_TEST_SUITE_P(name, gradients_by_definition, testing::Values("op fields", ...));
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "../reference/elements.hpp"
#include "../reference/store.hpp"
#include "call_data.hpp"
#include "call_judge.hpp"
#include "place.hpp"

namespace tessera::support {

/// A call of f32 with every tensor that its text allows, each of them row-major; but for what
/// gradients do not know.
class whole_call {
 public:
  whole_call(std::string_view op, std::string_view text, std::uint64_t seed)
      : random_(seed),
        data_(problem_of(op, text), random_, {.row_major = true, .poison = false, .even = true}) {}

  call_data& data() { return data_; }
  /// Its tensors by name.
  std::map<std::string_view, tensor_view> tensors() const {
    std::map<std::string_view, tensor_view> all;
    const auto forms = data_.op().form->tensors;
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if (data_.tensors()[i].present()) all[forms[i].name] = data_.tensors()[i];
    }
    return all;
  }
  /// What its definition gives, by name.
  std::map<std::string_view, std::vector<double>> truth() const {
    const call_expectation expectation(data_.call());
    std::map<std::string_view, std::vector<double>> all;
    for (const reference::expected_tensor& one : expectation.truth()) {
      all[data_.op().form->tensors[one.tensor].name] = one.values;
    }
    return all;
  }

 private:
  static owned_problem problem_of(std::string_view name, std::string_view text) {
    const operation& op = *operation_named(name).op;
    owned_problem problem = whole_problem(op, text).value();
    const operation* const backward = operation_named(std::string(name) + "_backward").op;
    if (backward == nullptr) return problem;
    const owned_problem of_gradients = whole_problem(*backward, text).value();
    const auto known = [&](std::string_view tensor) {
      const auto place = std::ranges::find(backward->form->tensors, tensor, &tensor_form::name) -
                         backward->form->tensors.begin();
      const auto index = static_cast<std::size_t>(place);
      return index < backward->form->tensors.size() && of_gradients.tensors[index].present();
    };
    for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
      const tensor_form& own = op.form->tensors[i];
      if (own.use != tensor_use::output && !known(own.name) &&
          !known("d_" + std::string(own.name))) {
        problem.tensors[i] = {};
      }
    }
    return problem;
  }

  random_source random_;
  call_data data_;
};

class gradients_by_definition : public testing::TestWithParam<const char*> {
 protected:
  /// Inputs of the gradient become those of the forward call, on a grid such that f32 holds their
  /// sums with steps.
  static void share_inputs(const whole_call& forward, const whole_call& backward) {
    const auto of_gradients = backward.tensors();
    for (const auto& [name, to] : forward.tensors()) {
      const auto own = of_gradients.find(name);
      const tensor_view from = own == of_gradients.end() ? to : own->second;
      ASSERT_EQ(to.elements(), from.elements()) << name;
      const std::vector<double> numbers = reference::to_doubles(from);
      const auto put = [&](const tensor_view& view) {
        reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
          const double x = numbers[static_cast<std::size_t>(flat)];
          const bool moves = view.type == dtype::f32 && std::isfinite(x);
          reference::store(view, offset, moves ? std::round(x * 0x1p12) * 0x1p-12 : x);
        });
      };
      put(from);
      put(to);
    }
  }
  /// The sum of what the forward call gives, times what comes into the gradient.
  static double loss(const whole_call& forward, const whole_call& backward) {
    const auto found = forward.truth();
    const auto incoming = backward.tensors();
    double sum = 0;
    for (const auto& [name, values] : found) {
      const auto gradient = incoming.find("d_" + std::string(name));
      if (gradient == incoming.end()) continue;
      const std::vector<double> weights = reference::to_doubles(gradient->second);
      for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
    }
    return sum;
  }
};

TEST_P(gradients_by_definition, are_the_differences_of_forward_calls) {
  const std::string text = GetParam(), name = text.substr(0, text.find(' '));
  const std::string fields = text.substr(name.size() + 1);
  whole_call forward(name, fields, 1), backward(name + "_backward", fields, 2);
  ASSERT_TRUE(forward.data().refusal()) << forward.data().refusal().message();
  ASSERT_TRUE(backward.data().refusal()) << backward.data().refusal().message();
  share_inputs(forward, backward);
  const auto inputs = forward.tensors();
  std::int64_t compared = 0;
  for (const auto& [output, values] : backward.truth()) {
    const auto input = inputs.find(output.substr(2));
    ASSERT_NE(input, inputs.end()) << output;
    const tensor_view& view = input->second;
    for (std::int64_t element = 0; element < view.elements(); element += 1 + view.elements() / 7) {
      std::int64_t place = 0;
      reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
        if (flat == element) place = offset;
      });
      const double x = reference::read(view, place);
      if (!(std::fabs(x) < 64)) continue;  // f32 holds no step beside it
      const auto slope = [&](double step) {
        reference::store(view, place, x + step);
        const double above = loss(forward, backward);
        reference::store(view, place, x - step);
        const double below = loss(forward, backward);
        reference::store(view, place, x);
        return (above - below) / (2 * step);
      };
      // Richardson's of two differences, whose distance bounds its error.
      const double wide = slope(0x1p-7), narrow = slope(0x1p-8);
      const double bound = std::fabs(wide - narrow) + 0x1p-30;
      EXPECT_NEAR(values[static_cast<std::size_t>(element)], narrow + (narrow - wide) / 3, bound)
          << output << ", element " << element;
      ++compared;
    }
  }
  EXPECT_GT(compared, 5);
}

}  // namespace tessera::support
