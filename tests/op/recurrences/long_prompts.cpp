// Errors of recurrences do not grow with the tokens of a prompt.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

/// Decays of 0.9 and less a token: what a sum rounds is forgotten with it.
void forget(const call_data& data) {
  const auto forms = data.op().form->tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view& view = data.tensors()[i];
    const std::string_view name = forms[i].name;
    const bool decays = name == "g" || name == "gk" || name == "w" || name == "A";
    if (!view.present() || !(decays || name == "dt")) continue;
    const bool is_raw = name == "w" && data.op().name == "rwkv4";
    const std::vector<double> drawn = reference::to_doubles(view);
    reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const double x = std::fmin(0.1 + std::fabs(drawn[static_cast<std::size_t>(flat)]), 1.0);
      reference::store(view, offset, !decays ? 1.0 : is_raw ? std::log(x) : -x);
    });
  }
}

/// The root mean square of errors of answers, relative to that of the truth, of a prompt whose
/// length is "%" in a text.
double error_of(std::string_view text, std::int64_t length) {
  const std::string_view name = text.substr(0, text.find(' '));
  std::string fields;
  for (const char letter : text.substr(name.size() + 1)) {
    fields += letter == '%' ? std::to_string(length) : std::string(1, letter);
  }
  const found_operation known = operation_named(name);
  random_source random(1);
  call_data data(whole_problem(*known.op, fields, false).value(), random,
                 {.row_major = true, .poison = false, .even = true});
  EXPECT_TRUE(data.refusal()) << data.refusal().message();
  forget(data);
  const call_expectation expectation(data.call());
  const status done = call_here(*known.kind, data.problem());
  EXPECT_TRUE(done) << done.message();
  double errors = 0, all = 0;
  for (const reference::expected_tensor& truth : expectation.truth()) {
    if (data.op().form->tensors[truth.tensor].name != "out") continue;
    const std::vector<double> found = reference::to_doubles(data.tensors()[truth.tensor]);
    for (std::size_t i = 0; i < found.size(); ++i) {
      errors += (found[i] - truth.values[i]) * (found[i] - truth.values[i]);
      all += truth.values[i] * truth.values[i];
    }
  }
  EXPECT_GT(all, 0);
  return std::sqrt(errors / all);
}

class long_prompts : public testing::TestWithParam<const char*> {};

TEST_P(long_prompts, are_as_accurate_as_short_ones) {
  const double of_short = error_of(GetParam(), 64);
  EXPECT_LT(of_short, 1e-6);
  EXPECT_LT(error_of(GetParam(), 1 << 16), 2 * of_short);
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, long_prompts,
    testing::Values("recurrent q=[1,%,1,4]f32 k=[1,%,1,4] v=[1,%,1,3] g=[1,%,1]f32",
                    "recurrent q=[1,%,1,4]f32 k=[1,%,1,4] v=[1,%,1,3] g=[1,%,1]f32 gv=[1,%,1,3]f32",
                    "gla q=[1,%,1,4]f32 k=[1,%,1,4] v=[1,%,1,3] gk=[1,%,1,4]f32",
                    "rwkv6 r=[1,%,1,4]f32 v=[1,%,1,3]",
                    "gated_delta_rule q=[1,%,1,4]f32 v=[1,%,1,3] g=[1,%,1]f32 beta=[1,%,1]f32 "
                    "use_qk_l2norm=true",
                    "kernel_delta_attention q=[1,%,1,4]f32 v=[1,%,1,3] gk=[1,%,1,4]f32 "
                    "beta=[1,%,1]f32 use_qk_l2norm=true",
                    "rwkv4 k=[1,%,3]f32", "state_space_v1 x=[1,%,3]f32 A=[3,2]f32 B=[1,%,2]",
                    "state_space_v2 x=[1,%,1,3]f32 A=[1]f32 B=[1,%,1,2]"));

}  // namespace
}  // namespace tessera::support
