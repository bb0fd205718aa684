// Gradients of sequences of many chunks of tokens, whole and not, against the definition: decays of
// heads and of channels, none, and ones that forget everything.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/place.hpp"

namespace tessera::support {
namespace {

owned_problem problem_of(std::string_view text) {
  const operation& op = *operation_named(text.substr(0, text.find(' '))).op;
  return whole_problem(op, text.substr(text.find(' ') + 1), false).value();
}

class delta_rule_gradients : public testing::TestWithParam<std::string_view> {
 protected:
  static constexpr memory_wishes wishes{.row_major = true, .poison = true, .even = true};
  delta_rule_gradients()
      : kind_(*operation_named(GetParam().substr(0, GetParam().find(' '))).kind),
        random_(5),
        data_(problem_of(GetParam()), random_, wishes) {}

  void expect_right() {
    const call_expectation expectation(data_.call());
    const status done = call_here(kind_, data_.owned().view());
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(data_.tensors()), "");
  }

  const family& kind_;
  random_source random_;
  call_data data_;
};

TEST_P(delta_rule_gradients, are_those_of_the_definition) {
  expect_right();
  EXPECT_TRUE(data_.intact()) << "bytes outside the output were written";
}

// Every third decay forgets all that was, or by far.
TEST_P(delta_rule_gradients, cross_tokens_that_forget) {
  for (const std::string_view name : {"g", "gk", "w"}) {
    const auto tensors = data_.op().form->tensors;
    const auto at = std::ranges::find(tensors, name, &tensor_form::name) - tensors.begin();
    if (at == static_cast<std::ptrdiff_t>(tensors.size()) ||
        !data_.call().has(static_cast<std::size_t>(at))) {
      continue;
    }
    const tensor_view& view = data_.tensors()[at];
    reference::for_each_element(view, [&](std::int64_t i, std::int64_t offset) {
      constexpr double all = -std::numeric_limits<double>::infinity();
      if (i % 3 == 0) reference::store(view, offset, i % 2 == 0 ? all : -40.0);
    });
  }
  expect_right();
}

constexpr std::string_view calls[] = {
    "gated_delta_rule_backward q=[1,150,2,20]f32 v=[1,150,4,35] g=[1,150,4]f32 beta=[1,150,4]f32 "
    "initial_state=[1,4,20,35]f32",
    "gated_delta_rule_backward q=[2,64,1,64]f32 v=[2,64,1,70] beta=[2,64,1]f32",
    "kernel_delta_attention_backward q=[1,101,2,33]bf16 v=[1,101,2,20] gk=[1,101,2,33]f32 "
    "beta=[1,101,2]bf16 initial_state=[1,2,33,20]f32 use_qk_l2norm=true",
    "kernel_delta_attention_backward q=[1,120,2,16]f32 v=[1,120,2,16] gk=[1,120,2,16]f32 "
    "beta=[1,120,2]f32 cu_seqlens=[4]i32",
    "rwkv7_backward r=[1,130,2,20]f32 w=[1,130,2,20]f32 v=[1,130,2,35] "
    "initial_state=[1,2,20,35]f32",
    "rwkv7_mul_backward r=[1,100,2,20]f32 w=[1,100,2,20]f32 v=[1,100,2,9] reverse=true",
};
const auto name_of_call = [](const auto& info) { return "call_" + std::to_string(info.index); };
INSTANTIATE_TEST_SUITE_P(calls, delta_rule_gradients, testing::ValuesIn(calls), name_of_call);

}  // namespace
}  // namespace tessera::support
