// The calls of this program run on the host, on its tensors as they are.
#include "tests/support/place.hpp"

#include <tessera/runtime/device_facts.hpp>

#include "tests/support/pooling_data.hpp"

namespace tessera::support {

bool runs_here(backend target) {
  return this_device().runs(target);
}

status run_here(mean_pooling_op op, const mean_pooling_args& args,
                const mean_pooling_options& options, const context& where) {
  return run(op, args, options, where);
}

}  // namespace tessera::support
