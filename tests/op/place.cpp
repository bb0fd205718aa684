// The calls of this program run on the host, on its tensors as they are.
#include "tests/support/place.hpp"

#include <tessera/api/flash_attention.hpp>
#include <tessera/runtime/device_facts.hpp>

namespace tessera::support {

device_kind kind_here() {
  return device_kind::cpu;
}

bool runs_here(backend target) {
  return this_device().runs(target);
}

bool sees_values_here() {
  return true;
}

flash_problem problem_here(const flash_attention_args& args, const flash_attention_options& options,
                           flash_op op) {
  return problem_of(args, options, op);
}

status run_here(flash_op op, const flash_attention_args& args,
                const flash_attention_options& options, const context& where) {
  switch (op) {
    case flash_op::flash_attention:
      return flash_attention(args, options, where);
    case flash_op::attention:
      return attention(args, options, where);
    case flash_op::scaled_dot_product_attention:
      return scaled_dot_product_attention(args, options, where);
  }
  return {status_code::invalid_argument, "op: is not an operation"};
}

}  // namespace tessera::support
