// What is asked of the delta rule at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations that read and write by the keys.
enum class delta_rule_op : std::uint8_t {
  gated_delta_rule,
  kernel_delta_attention,
  gated_delta_rule_backward,
  kernel_delta_attention_backward,
};

constexpr delta_rule_pass pass_of(delta_rule_op op) noexcept {
  return op >= delta_rule_op::gated_delta_rule_backward ? delta_rule_pass::backward
                                                        : delta_rule_pass::forward;
}

/// A call of one of them without its memory.
using delta_rule_problem = basic_problem<delta_rule_op, delta_rule_args, delta_rule_options>;

/// See spec/problem_of.hpp.
delta_rule_problem problem_type(const delta_rule_args&);

}  // namespace tessera
