// From what a caller says (views, options) to what a kernel receives (pointers, strides, scalars):
// the engine of spec/lower.hpp over the attention declaration.
#pragma once

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Validates a call completely and fills `lowered`, whose content is unspecified after a refusal.
/// All tensors lie in host memory; or, with `device`, on one device, which it becomes.
inline status lower(flash_op op, const flash_attention_args& args,
                    const flash_attention_options& options, attention_kernel_args& lowered,
                    device_id* device = nullptr) {
  return lower_typed(attention_table::operations, op, args, options, &lowered, device);
}

inline status lower(page_op op, const page_attention_args& args,
                    const page_attention_options& options, attention_kernel_args& lowered,
                    device_id* device = nullptr) {
  return lower_typed(paged_table::operations, op, args, options, &lowered, device);
}

/// Validates a problem, and gives the arguments that a row-major call of these shapes would have;
/// pointers of present tensors are not null but point to nothing.
inline status lower(flash_problem problem, attention_kernel_args& lowered) {
  return lower_typed(attention_table::operations, problem, &lowered);
}

/// The engine's view of a problem, which outlives it.
inline problem_view view_of(const flash_problem& problem) noexcept {
  return {&attention_table::operations[static_cast<std::size_t>(problem.op)],
          tensors_of(problem.tensors), &problem.options, problem.unaligned};
}

}  // namespace tessera
