// Work items over OpenMP threads. The only place that starts any.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace tessera::prim {

/// What OpenMP would use here; 1 without OpenMP.
inline int default_threads() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Calls body(item, thread) for every item in [0, items), in increasing order as threads become
/// free, so that the longest items belong first. `thread` is in [0, threads). The ISA in the type
/// keeps translation units with different flags apart.
///
/// A team has all threads, also for fewer items: libgomp ends threads that a smaller team does not
/// need, and starts them again for the next one, which takes some 250 us for 8 of 16.
template <class Isa, class Body>
void parallel_items(std::int64_t items, int threads, const Body& body) {
#if defined(_OPENMP)
  if (threads > 1 && items > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t item = 0; item < items; ++item) body(item, omp_get_thread_num());
    return;
  }
#else
  static_cast<void>(threads);
#endif
  for (std::int64_t item = 0; item < items; ++item) body(item, 0);
}

}  // namespace tessera::prim
