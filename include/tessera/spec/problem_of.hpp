// The problem of a call, whatever its operation.
#pragma once

#include <utility>

#include <tessera/spec/problem.hpp>

namespace tessera {

/// The type of the problems that a struct of args makes: what `problem_type(const args&)` returns,
/// which a family declares for each of its own.
template <class Args>
using problem_for = decltype(problem_type(std::declval<const Args&>()));

/// The shapes and options of a call, of the first operation if none is named. Copies; validates
/// nothing. Families whose rows want aligned tensors have a `rows_are_unaligned(args)`.
template <class Args>
constexpr problem_for<Args> problem_of(const Args& args,
                                       const typename problem_for<Args>::options_type& options = {},
                                       typename problem_for<Args>::op_type op = {}) noexcept {
  problem_for<Args> problem{.op = op, .tensors = args, .options = options};
  if constexpr (requires { rows_are_unaligned(args); }) {
    problem.unaligned = rows_are_unaligned(args);
  }
  return problem;
}

}  // namespace tessera
