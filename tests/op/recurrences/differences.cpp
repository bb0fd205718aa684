// What gradients of recurrences are judged by, beside central differences of what their forward
// calls are judged by: both in double, neither a kernel's.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/place.hpp"

namespace tessera::support {
namespace {

/// A call of f32 with every tensor that its text allows, each of them row-major.
class whole_call {
 public:
  whole_call(std::string_view op, std::string_view text, std::uint64_t seed)
      : random_(seed),
        data_(whole_problem(*operation_named(op).op, text).value(), random_,
              {.row_major = true, .poison = false, .even = true}) {}

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
  random_source random_;
  call_data data_;
};

class gradients_by_definition : public testing::TestWithParam<const char*> {
 protected:
  /// Inputs of the gradient become those of the forward call, on a grid such that f32 holds their
  /// sums with steps.
  static void share_inputs(const whole_call& forward, const whole_call& backward) {
    const auto to = forward.tensors();
    for (const auto& [name, from] : backward.tensors()) {
      if (!to.contains(name)) continue;
      ASSERT_EQ(to.at(name).elements(), from.elements()) << name;
      const std::vector<double> numbers = reference::to_doubles(from);
      const auto put = [&](const tensor_view& view) {
        reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
          const double x = numbers[static_cast<std::size_t>(flat)];
          const bool moves = view.type == dtype::f32 && std::isfinite(x);
          reference::store(view, offset, moves ? std::round(x * 0x1p12) * 0x1p-12 : x);
        });
      };
      put(from);
      put(to.at(name));
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
  EXPECT_GT(compared, 10);
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, gradients_by_definition,
    testing::Values(
        "recurrent q=[2,5,4,3]f32 k=[2,5,2,3] v=[2,5,2,2] scale=0.4",
        "gla q=[1,6,2,3]f32 k=[1,6,2,3] v=[1,6,2,2] reverse=true",
        "lightning_attn q=[1,6,2,3]f32 k=[1,6,2,3] v=[1,6,2,2]", "rwkv6 r=[2,5,2,3]f32 v=[2,5,2,2]",
        "rwkv6 r=[1,5,2,3]f32 v=[1,5,2,2] raw_w=true",
        "gated_delta_rule q=[2,5,1,3]f32 v=[2,5,2,2] g=[2,5,2]f32 beta=[2,5,2]f32 "
        "use_qk_l2norm=true",
        "gated_delta_rule q=[1,5,1,3]f32 v=[1,5,2,2] g=[1,5,2]f32 beta=[1,5,2]f32 A_log=[2]f32 "
        "dt_bias=[2]f32 use_gate=true use_beta_sigmoid=true allow_neg_eigval=true",
        "kernel_delta_attention q=[2,5,1,3]f32 v=[2,5,2,2] gk=[2,5,2,3]f32 beta=[2,5,2]f32",
        "kernel_delta_attention q=[1,5,1,3]f32 v=[1,5,2,2] gk=[1,5,2,3]f32 beta=[1,5,2]f32 "
        "A_log=[2]f32 dt_bias=[2,3]f32 use_gate=true gate_lower_bound=-5 use_qk_l2norm=true",
        "rwkv7 r=[2,5,2,3]f32 w=[2,5,2,3]f32 v=[2,5,2,2]",
        "rwkv7_mul r=[2,5,2,3]f32 w=[2,5,2,3]f32 v=[2,5,2,2] reverse=true", "rwkv4 k=[2,6,3]f32",
        "state_space_v1 x=[2,5,4]f32 A=[4,3]f32 B=[2,5,2,3]",
        "state_space_v1 x=[1,5,4]f32 A=[4,3]f32 B=[1,5,3] dt_softplus=true",
        "state_space_v2 x=[2,5,4,2]f32 A=[4]f32 B=[2,5,2,3]",
        "state_space_v2 x=[1,5,4,2]f32 A=[4]f32 B=[1,5,2,3] dt_softplus=true norm=true "
        "norm_before_gate=true",
        "state_space_v2 x=[1,5,4,2]f32 A=[4]f32 B=[1,5,2,3] dt_softplus=true norm=true "
        "norm_group_size=4",
        "state_space_v2 x=[2,5,4,3]f32 A=[4]f32 B=[2,5,2,3] D=[4,3]f32",
        "state_space_v2 x=[1,6,2,3]f32 A=[2]f32 B=[1,6,2,3] D=[2,3]f32 cu_seqlens=[3]i32 "
        "dt_softplus=true norm=true"));

}  // namespace
}  // namespace tessera::support
