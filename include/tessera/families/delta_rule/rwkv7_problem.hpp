// What is asked of RWKV-7 at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/rwkv7_args.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations that read and write by vectors of their own.
enum class rwkv7_op : std::uint8_t {
  rwkv7,
  rwkv7_mul,
  rwkv7_backward,
  rwkv7_mul_backward,
};

constexpr delta_rule_pass pass_of(rwkv7_op op) noexcept {
  return op >= rwkv7_op::rwkv7_backward ? delta_rule_pass::backward : delta_rule_pass::forward;
}

/// A call of one of them without its memory.
using rwkv7_problem = basic_problem<rwkv7_op, rwkv7_args, rwkv7_options>;

/// See spec/problem_of.hpp.
rwkv7_problem problem_type(const rwkv7_args&);

}  // namespace tessera
