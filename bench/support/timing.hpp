// Wall-clock timing with robust statistics: a warm-up, then rounds until a time budget is spent;
// the median is the result and the spread is kept beside it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace tessera::bench {

/// Seconds since an arbitrary point.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Order statistics of the measured rounds, in seconds.
struct timing {
  double min = 0;
  double lower_quartile = 0;
  double median = 0;
  double upper_quartile = 0;
  double max = 0;
  std::size_t rounds = 0;
};

/// The statistics of `seconds`; all zero if it is empty.
inline timing statistics_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double fraction) {
    const double position = fraction * static_cast<double>(seconds.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, seconds.size() - 1);
    const double weight = position - static_cast<double>(below);
    return seconds[below] * (1 - weight) + seconds[above] * weight;
  };
  return {seconds.front(), at(0.25), at(0.5), at(0.75), seconds.back(), seconds.size()};
}

/// How long to measure.
struct timing_budget {
  std::size_t warm_ups = 1;
  std::size_t min_rounds = 3;
  std::size_t max_rounds = 1000;
  double seconds = 0.3;  ///< no further round starts after this, once there are `min_rounds`
};

/// Calls `work(round)` warm-ups first, then timed rounds. `round` counts from 0 over both, so that
/// the callee can rotate its buffers.
template <class Work>
timing measure(const timing_budget& budget, Work&& work) {
  std::size_t round = 0;
  for (; round < budget.warm_ups; ++round) work(round);
  std::vector<double> seconds;
  const double begin = now_seconds();
  while (seconds.size() < budget.max_rounds &&
         (seconds.size() < budget.min_rounds || now_seconds() - begin < budget.seconds)) {
    const double start = now_seconds();
    work(round++);
    seconds.push_back(now_seconds() - start);
  }
  return statistics_of(std::move(seconds));
}

}  // namespace tessera::bench
