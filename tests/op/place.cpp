// The calls of this program run on the host, on its tensors as they are.
#include "tests/support/place.hpp"

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

context context_here(context where) {
  return where;
}

problem_view problem_here(problem_view call) {
  return call;
}

status run_here(const problem_view& call, const context& where, const placed_run& run) {
  return run(call.tensors, where);
}

}  // namespace tessera::support
