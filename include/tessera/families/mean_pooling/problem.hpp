// What is asked of mean pooling at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations served by the mean pooling family.
enum class mean_pooling_op : std::uint8_t {
  mean_pooling,
  mean_pooling_chunks,
  mean_pooling_backward,
  mean_pooling_chunks_backward,
};

constexpr bool is_backward(mean_pooling_op op) noexcept {
  return op == mean_pooling_op::mean_pooling_backward ||
         op == mean_pooling_op::mean_pooling_chunks_backward;
}

constexpr bool has_chunks(mean_pooling_op op) noexcept {
  return op == mean_pooling_op::mean_pooling_chunks ||
         op == mean_pooling_op::mean_pooling_chunks_backward;
}

/// A call of one of them without its memory. In problem text x stands for d_x, which has its shape.
using mean_pooling_problem =
    basic_problem<mean_pooling_op, mean_pooling_args, mean_pooling_options>;

constexpr pooling_pass pass_of(mean_pooling_op op) noexcept {
  return is_backward(op) ? pooling_pass::backward : pooling_pass::forward;
}

/// See spec/problem_of.hpp.
mean_pooling_problem problem_type(const mean_pooling_args&);

}  // namespace tessera
