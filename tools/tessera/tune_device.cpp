#include "tune_device.hpp"

#include <fmt/format.h>

#include <tessera/version.hpp>

#include "command.hpp"
#include "execution.hpp"
#include "tools/tuner/measuring_place.hpp"

namespace tessera::tool {
namespace {

device_facts facts_in_child_of(device_id device) {
  if (device.kind == device_kind::cpu) return this_device();
  const result<device_facts> found = tuner::facts_in_child(device);
  if (!found) throw failure("--backend: " + found.message(), exit_status::no);
  return *found;
}

}  // namespace

void add_tune_device_flags(CLI::App& command, tune_device_flags& flags) {
  command
      .add_option("--backend", flags.backend,
                  "Whose rows: cpu, or those of a GPU, cuda:1 the second one")
      ->type_name("cpu|cuda[:N]");
  command
      .add_option("--threads", flags.threads,
                  "Threads of the CPU (default: OMP_NUM_THREADS, else all)")
      ->type_name("N")
      ->check(between(1, 4096));
}

tune_device::tune_device(const tune_device_flags& flags)
    : facts_(facts_in_child_of(named_device(flags.backend))), threads_(flags.threads) {
  if (facts_.kind == device_kind::cpu || threads_ == 0) return;
  throw failure(fmt::format("--threads: is {}, and --backend is {}, which has {} multiprocessors",
                            threads_, flags.backend, facts_.multiprocessors));
}

tuner::conditions tune_device::conditions() const noexcept {
  return {.threads = threads_, .device = &facts_};
}

std::string tune_device::environment() const {
  return fmt::format("{}; tessera {}", text_of(facts_), version);
}

}  // namespace tessera::tool
