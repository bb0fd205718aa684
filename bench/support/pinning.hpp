// Threads stay on their processors while something is measured.
#pragma once

#include <cstddef>
#include <vector>

#include <omp.h>

#if defined(__linux__)
#include <sched.h>
#endif

namespace tessera::bench {

/// Pins each OpenMP thread to a processor of its own, if there are as many of both, and lets them
/// go at the end of its life. What looks at the affinity of the process should have looked before.
class pinned_threads {
 public:
#if defined(__linux__)
  pinned_threads() {
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    if (CPU_COUNT(&before_) != omp_get_max_threads()) return;
    std::vector<int> processors;
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &before_)) processors.push_back(number);
    }
    pinned_ = true;
#pragma omp parallel
    {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(processors[static_cast<std::size_t>(omp_get_thread_num())], &own);
      static_cast<void>(sched_setaffinity(0, sizeof own, &own));
    }
  }
  ~pinned_threads() {
    if (!pinned_) return;
    const cpu_set_t before = before_;
#pragma omp parallel
    static_cast<void>(sched_setaffinity(0, sizeof before, &before));
  }
#else
  pinned_threads() = default;
#endif
  pinned_threads(const pinned_threads&) = delete;
  pinned_threads& operator=(const pinned_threads&) = delete;

 private:
#if defined(__linux__)
  cpu_set_t before_{};
  bool pinned_ = false;
#endif
};

}  // namespace tessera::bench
