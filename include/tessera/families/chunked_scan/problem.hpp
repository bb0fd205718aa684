// What is asked of linear attention with decay at run time: dtypes, sizes and options, no pointers.
// Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/args.hpp>
#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations on q, k and v.
enum class recurrent_op : std::uint8_t {
  recurrent,
  gla,
  lightning_attn,
  recurrent_backward,
  gla_backward,
  lightning_attn_backward,
};

/// A call of one of them without its memory.
using recurrent_problem = basic_problem<recurrent_op, recurrent_args, recurrent_options>;

constexpr chunked_scan_pass pass_of(recurrent_op op) noexcept {
  return op >= recurrent_op::recurrent_backward ? chunked_scan_pass::backward
                                                : chunked_scan_pass::forward;
}

/// See spec/problem_of.hpp.
recurrent_problem problem_type(const recurrent_args&);

}  // namespace tessera
