// Calls whose tensors lie as kernels like them, row by row from multiples of 16 bytes on: random
// calls seldom do, and are shorter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {

/// The problem of a text, with what the operation gives of a state that the text has, since texts
/// do not name it: the final state, or the gradient of the initial one.
inline owned_problem problem_with_state_outputs(const operation& op, std::string_view text) {
  owned_problem problem = whole_problem(op, text, false).value();
  const auto place = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(op.form->tensors, name, &tensor_form::name) -
                                    op.form->tensors.begin());
  };
  const std::size_t initial = place("initial_state");
  if (initial == op.form->tensors.size()) return problem;
  for (const std::string_view output : {"final_state", "d_initial_state"}) {
    const std::size_t at = place(output);
    if (at < op.form->tensors.size() && (op.taken >> at & 1u) != 0) {
      problem.tensors[at] = problem.tensors[initial];
    }
  }
  return problem;
}

/// Runs the call of a text, an operation and its problem, twice.
inline void expect_right_when_aligned(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(' '));
  const found_operation known = operation_named(name);
  if (const std::string why = why_not_here(*known.kind); !why.empty()) GTEST_SKIP() << why;
  random_source random(3);
  call_data data(problem_with_state_outputs(*known.op, text.substr(name.size() + 1)), random,
                 {.aligned = true});
  ASSERT_TRUE(data.refusal()) << data.refusal().message();
  const call_expectation expectation(data.call());
  std::vector<std::vector<std::byte>> first;
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(complaints_of_call(*known.kind, data, expectation, {}, first), "") << data.text();
  }
}

}  // namespace tessera::support
