// The probe and the ceilings of this process, measured when they are first asked for.
#pragma once

#include <omp.h>

#include "bench/support/ceilings.hpp"

namespace tessera::bench {

/// The probe of this run; settles the clock at the first call.
inline limit_probe& this_run_probe() {
  static limit_probe probe(omp_get_max_threads());
  return probe;
}

/// The ceilings of this run, measured at the first call.
inline const ceilings& this_run_ceilings() {
  static const ceilings measured = measure_ceilings(this_run_probe());
  return measured;
}

}  // namespace tessera::bench
