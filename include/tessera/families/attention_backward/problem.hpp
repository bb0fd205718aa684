// What is asked of a gradient of attention at run time: dtypes, sizes and options, no pointers.
#pragma once

#include <cstdint>

#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention_backward/args.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Gradients of the operations of `flash_op`, in the same order.
enum class attention_backward_op : std::uint8_t {
  flash_attention_backward,
  attention_backward,
  scaled_dot_product_attention_backward,
};

/// A call of one of them without its memory. The options are those of the forward call.
using attention_backward_problem =
    basic_problem<attention_backward_op, attention_backward_args, flash_attention_options>;

/// See spec/problem_of.hpp.
attention_backward_problem problem_type(const attention_backward_args&);
inline bool rows_are_unaligned(const attention_backward_args& args) noexcept {
  return are_unaligned(args.q, args.k, args.v, args.out, args.d_out);
}

}  // namespace tessera
