// What is asked of delta rules over pools of states at run time: dtypes, sizes and options, no
// pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/ragged_args.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations whose operands are tensors of their own.
enum class ragged_delta_rule_op : std::uint8_t {
  ragged_gated_delta_rule,
  ragged_gated_delta_rule_backward,
};
/// Operations whose q, k and v lie side by side.
enum class ragged_delta_rule_v2_op : std::uint8_t {
  ragged_gated_delta_rule_v2,
  ragged_gated_delta_rule_v2_backward,
};

constexpr delta_rule_pass pass_of(ragged_delta_rule_op op) noexcept {
  return op == ragged_delta_rule_op::ragged_gated_delta_rule ? delta_rule_pass::forward
                                                             : delta_rule_pass::backward;
}
constexpr delta_rule_pass pass_of(ragged_delta_rule_v2_op op) noexcept {
  return op == ragged_delta_rule_v2_op::ragged_gated_delta_rule_v2 ? delta_rule_pass::forward
                                                                   : delta_rule_pass::backward;
}

/// Calls of them without their memory.
using ragged_delta_rule_problem =
    basic_problem<ragged_delta_rule_op, ragged_delta_rule_args, delta_rule_options>;
using ragged_delta_rule_v2_problem =
    basic_problem<ragged_delta_rule_v2_op, ragged_delta_rule_v2_args, ragged_delta_rule_v2_options>;

/// See spec/problem_of.hpp.
ragged_delta_rule_problem problem_type(const ragged_delta_rule_args&);
ragged_delta_rule_v2_problem problem_type(const ragged_delta_rule_v2_args&);

}  // namespace tessera
