// How many threads a call uses.
#pragma once

#include <algorithm>
#include <string>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/spec/status.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace tessera {

namespace {

/// More threads than any machine has; a request beyond is a mistake.
constexpr int most_threads = 4096;

int default_threads() {
#if defined(_OPENMP)
  return std::clamp(omp_get_max_threads(), 1, most_threads);
#else
  const int wanted = process_environment().threads;
  return std::clamp(wanted > 0 ? wanted : this_device().available_threads, 1, most_threads);
#endif
}

/// The threads of a context; 0 stands for the default.
status resolve_threads(int wanted, int& threads) {
  if (wanted < 0 || wanted > most_threads) {
    return {status_code::invalid_argument, "context.threads: is " + std::to_string(wanted) +
                                               ", must be 0 to " + std::to_string(most_threads)};
  }
  threads = wanted == 0 ? default_threads() : wanted;
  return {};
}

/// The same for a device that is not there: what it has, unless OMP_NUM_THREADS says another.
status resolve_threads_of(const device_facts& device, int wanted, int& threads) {
  if (status done = resolve_threads(wanted, threads); !done || wanted != 0) return done;
  const int asked = process_environment().threads;
  threads = std::clamp(asked > 0 ? asked : device.available_threads, 1, most_threads);
  return {};
}

}  // namespace

}  // namespace tessera
