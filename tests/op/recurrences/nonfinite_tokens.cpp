// A number of a token that is not finite reaches, on every row for a CPU, what the definition says
// and nothing else: later tokens forward, and of gradients those that it is part of. Rows for GPUs
// that take tokens 64 at a time spread it within these (recurrence/README.md).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/spec/backend.hpp>

#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/place.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t prompt_tokens = 40;  // two chunks and a part of one

/// Inputs that have a token's elements, by their places.
std::vector<std::size_t> inputs_of_tokens(const call_data& data, std::int64_t tokens) {
  std::vector<std::size_t> found;
  const auto forms = data.op().form->tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view& view = data.tensors()[i];
    const bool of_tokens = view.present() && view.rank >= 3 && view.extent[1] == tokens;
    if (of_tokens && !forms[i].is_output()) found.push_back(i);
  }
  return found;
}

/// Runs the call on every row for a CPU that takes it; returns how many did.
int expect_right_on_rows(const family& kind, call_data& data, const std::string& poisoned) {
  const call_expectation expectation(data.call());
  int ran = 0;
  for (const auto& row : kind.rows()) {
    if (is_cuda(row.target) || !runs_here(row.target)) continue;
    data.reset();
    const status done = call_here(kind, data.problem(), {.row = row.name, .threads = 1});
    if (!done && done.code() == status_code::ineligible_row) continue;
    EXPECT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(data.tensors()), "") << row.name << ", " << poisoned;
    ++ran;
  }
  return ran;
}

class nonfinite_tokens : public testing::TestWithParam<const char*> {};

TEST_P(nonfinite_tokens, reach_what_the_definition_says) {
  if (kind_here() != device_kind::cpu) GTEST_SKIP() << "rows for CPUs";
  const std::string_view text = GetParam(), name = text.substr(0, text.find(' '));
  std::string fields;
  // A text without a place for their number is of one token.
  const std::int64_t tokens = text.find('%') == text.npos ? 1 : prompt_tokens;
  for (const char letter : text.substr(name.size() + 1)) {
    fields += letter == '%' ? std::to_string(tokens) : std::string(1, letter);
  }
  for (const char* direction : {"", "_backward"}) {
    const found_operation known = operation_named(std::string(name) + direction);
    random_source random(3);
    call_data data(whole_problem(*known.op, fields, false).value(), random,
                   {.row_major = true, .poison = false, .even = true});
    ASSERT_TRUE(data.refusal()) << data.refusal().message();
    int ran = 0;
    for (const std::size_t input : inputs_of_tokens(data, tokens)) {
      const tensor_view& view = data.tensors()[input];
      const std::int64_t of_token = view.elements() / tokens;
      const std::int64_t element = std::min<std::int64_t>(21, tokens - 1) * of_token +
                                   std::min<std::int64_t>(1, of_token - 1);
      double kept = 0;
      const auto put = [&](double value) {
        reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
          if (flat != element) return;
          kept = reference::read(view, offset);
          reference::store(view, offset, value);
        });
        data.remember();
      };
      put(std::numeric_limits<double>::quiet_NaN());
      const double before = kept;
      ran +=
          expect_right_on_rows(*known.kind, data, std::string(data.op().form->tensors[input].name));
      put(before);
    }
    EXPECT_GT(ran, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, nonfinite_tokens,
    testing::Values("recurrent q=[1,%,2,20]f32 k=[1,%,2,20] v=[1,%,2,9] g=[1,%,2]f32",
                    "gla q=[1,%,2,20]f32 k=[1,%,2,20] v=[1,%,2,9] gk=[1,%,2,20]f32",
                    "rwkv6 r=[1,%,2,20]f32 v=[1,%,2,9]",
                    "gated_delta_rule q=[1,%,1,20]f32 v=[1,%,2,9] g=[1,%,2]f32 beta=[1,%,2]f32",
                    "kernel_delta_attention q=[1,%,1,20]f32 v=[1,%,2,9] gk=[1,%,2,20]f32 "
                    "beta=[1,%,2]f32",
                    "rwkv7 r=[1,%,2,20]f32 w=[1,%,2,20]f32 v=[1,%,2,9]",
                    "state_space_v1 x=[1,%,20]f32 A=[20,4]f32 B=[1,%,4]",
                    "state_space_v1 x=[1,1,20]f32 A=[20,16]f32 B=[1,1,16] "
                    "initial_state=[1,20,16]f32",
                    "state_space_v2 x=[1,%,2,5]f32 A=[2]f32 B=[1,%,1,4]", "rwkv4 k=[1,%,20]f32"));

}  // namespace
}  // namespace tessera::support
