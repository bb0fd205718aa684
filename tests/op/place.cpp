// The calls of this program run on the host, on its tensors as they are.
#include "tests/support/place.hpp"

#include <tessera/runtime/device_facts.hpp>

#include "tests/support/flash_call.hpp"

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
  return call(op, args, options, where);
}

}  // namespace tessera::support
