// What is asked of elementwise recurrences at run time: dtypes, sizes and options, no pointers.
// Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/rwkv4_args.hpp>
#include <tessera/families/selective_scan/rwkv4_options.hpp>
#include <tessera/families/selective_scan/state_space_args.hpp>
#include <tessera/families/selective_scan/state_space_options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Selective state-space operations.
enum class state_space_op : std::uint8_t {
  state_space_v1,
  state_space_v2,
  state_space_v1_backward,
  state_space_v2_backward,
};

constexpr scan_recurrence recurrence_of(state_space_op op) noexcept {
  const bool heads =
      op == state_space_op::state_space_v2 || op == state_space_op::state_space_v2_backward;
  return heads ? scan_recurrence::state_space_v2 : scan_recurrence::state_space_v1;
}

constexpr scan_pass pass_of(state_space_op op) noexcept {
  const bool forward = op == state_space_op::state_space_v1 || op == state_space_op::state_space_v2;
  return forward ? scan_pass::forward : scan_pass::backward;
}

/// A call of one of them without its memory.
using state_space_problem = basic_problem<state_space_op, state_space_args, state_space_options>;

/// Operations on weighted sums.
enum class rwkv4_op : std::uint8_t { rwkv4, rwkv4_backward };

constexpr scan_pass pass_of(rwkv4_op op) noexcept {
  return op == rwkv4_op::rwkv4 ? scan_pass::forward : scan_pass::backward;
}

/// A call of one of them without its memory.
using rwkv4_problem = basic_problem<rwkv4_op, rwkv4_args, rwkv4_options>;

/// See spec/problem_of.hpp.
state_space_problem problem_type(const state_space_args&);

rwkv4_problem problem_type(const rwkv4_args&);

}  // namespace tessera
