// Calls whose tensors lie as kernels like them, row by row from multiples of 16 bytes on: random
// calls seldom do, and are shorter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {

/// The problem of a text, with a final state if the operation gives one.
inline owned_problem problem_with_final_state(const operation& op, std::string_view text) {
  owned_problem problem = whole_problem(op, text, false).value();
  std::size_t initial = 0, last = 0;
  for (std::size_t at = 0; at < op.form->tensors.size(); ++at) {
    if (op.form->tensors[at].name == "initial_state") initial = at;
    if (op.form->tensors[at].name == "final_state") last = at;
  }
  if (!std::string_view(op.name).ends_with("_backward")) {
    problem.tensors[last] = problem.tensors[initial];
  }
  return problem;
}

/// Runs the call of a text, an operation and its problem, twice.
inline void expect_right_when_aligned(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(' '));
  const found_operation known = operation_named(name);
  if (const std::string why = why_not_here(*known.kind); !why.empty()) GTEST_SKIP() << why;
  random_source random(3);
  call_data data(problem_with_final_state(*known.op, text.substr(name.size() + 1)), random,
                 {.aligned = true});
  ASSERT_TRUE(data.refusal()) << data.refusal().message();
  const call_expectation expectation(data.call());
  std::vector<std::vector<std::byte>> first;
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(complaints_of_call(*known.kind, data, expectation, {}, first), "") << data.text();
  }
}

}  // namespace tessera::support
