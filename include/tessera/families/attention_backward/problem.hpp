// What is asked of a gradient of attention at run time: dtypes, sizes and options, no pointers.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention_backward/args.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera {

/// Gradients of the operations of `flash_op`, in the same order.
enum class attention_backward_op : std::uint8_t {
  flash_attention_backward,
  attention_backward,
  scaled_dot_product_attention_backward,
};

/// Their names, in the order of the enumerators.
inline constexpr std::array<std::string_view, 3> attention_backward_ops{
    "flash_attention_backward", "attention_backward", "scaled_dot_product_attention_backward"};

constexpr std::string_view name_of(attention_backward_op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < attention_backward_ops.size() ? attention_backward_ops[index] : "invalid";
}

/// A call of one of them without its memory. The options are those of the forward call.
using attention_backward_problem =
    basic_problem<attention_backward_op, attention_backward_args, flash_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline attention_backward_problem problem_of(
    const attention_backward_args& args, const flash_attention_options& options = {},
    attention_backward_op op = attention_backward_op::flash_attention_backward) noexcept {
  bool unaligned = false;
  for (const tensor_view* rows : {&args.q, &args.k, &args.v, &args.out, &args.d_out}) {
    unaligned |= args.q.device.kind == device_kind::cuda && !rows_are_aligned(*rows);
  }
  return {.op = op, .tensors = args, .unaligned = unaligned, .options = options};
}

}  // namespace tessera
