// Programs beside each other: contestants that do the same, in turn, and after them the limit of
// the round, because a shared machine is not the same for long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/timing.hpp"

namespace tessera::bench::peers {

struct contestant {
  std::string name;
  double work = 0;  ///< of a call, in units of the limit
  std::function<void()> run;
  std::vector<double> rates{}, shares{};  ///< of each round; shares are those of its limit
};

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Prints a line for each: the median rate in 1e9 units a second, milliseconds, the median share of
/// the limit. Whoever begins a round ends the next one.
inline void take_turns(std::vector<contestant>& all, int rounds,
                       const std::function<double()>& limit, const char* unit) {
  for (contestant& each : all) each.run();
  std::vector<double> limits;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> seconds(all.size());
    for (std::size_t turn = 0; turn < all.size(); ++turn) {
      const std::size_t number = (turn + static_cast<std::size_t>(round)) % all.size();
      const double start = now_seconds();
      all[number].run();
      seconds[number] = now_seconds() - start;
    }
    limits.push_back(limit());
    for (std::size_t number = 0; number < all.size(); ++number) {
      const double rate = all[number].work / seconds[number] * 1e-9;
      all[number].rates.push_back(rate);
      all[number].shares.push_back(rate / limits.back());
    }
  }
  std::printf("  limit %.0f %s\n", median(limits), unit);
  for (const contestant& each : all) {
    const double rate = median(each.rates);
    std::printf("  %-34s %8.1f %s  %8.3f ms  %.2f of the limit\n", each.name.c_str(), rate, unit,
                each.work / rate * 1e-6, median(each.shares));
  }
  std::fflush(stdout);
}

}  // namespace tessera::bench::peers
