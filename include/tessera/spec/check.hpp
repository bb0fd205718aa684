// Validates a call of any declared operation: options, presence, dtypes, shapes, memory, contents.
// Ordinary functions over the tables of declaration.hpp, the same code for every operation. A
// refusal is one sentence that names the tensor or option, the fact and both numbers ("k: head_dim
// is 96, q has 128"); nothing has been written then. A valid call allocates nothing.
#pragma once

#include <tessera/spec/check_contents.hpp>
#include <tessera/spec/check_memory.hpp>
#include <tessera/spec/check_options.hpp>
#include <tessera/spec/check_shapes.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::checks {

/// Validates a call completely. Reads the descriptions of the tensors and, in host memory, the
/// contents that a declaration names. `device` as in `is_memory`.
[[gnu::noinline]] inline bool is_call(bound_call& call, device_id* device, status& failure) {
  if (!are_options(call, failure) || !are_shapes(call, 0, failure) ||
      !is_memory(call, device, failure)) {
    return false;
  }
  const bool on_host = device == nullptr || device->kind == device_kind::cpu;
  return !on_host || are_contents(call, failure);
}

}  // namespace tessera::checks
