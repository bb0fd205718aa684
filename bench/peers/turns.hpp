// What programs beside peers have in common: sizes of products from the command line; contestants
// that do the same, in turn, and after them the limit of the round, because a shared machine is not
// the same for long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <omp.h>

#include <tessera/spec/status.hpp>

#include "bench/support/ceilings.hpp"
#include "bench/support/pinning.hpp"
#include "bench/support/timing.hpp"

namespace tessera::bench::peers {

/// Of M rows times [K, N].
struct product_size {
  std::int64_t m, n, k;
  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Ends the program with the library's refusal.
inline void require(const status& done) {
  if (!done) throw std::runtime_error(done.message());
}

/// The program: `compare` of each size MxNxK of the command line, without any of the usual ones, on
/// as many pinned threads as OpenMP has. K has to be a multiple of `step`. Gives its exit status.
inline int run_sizes(int count, char** texts, std::int64_t step, std::vector<product_size> sizes,
                     const std::function<void(product_size, limit_probe&)>& compare) {
  if (count > 1) sizes.clear();
  for (int i = 1; i < count; ++i) {
    long long m = 0, n = 0, k = 0;
    if (std::sscanf(texts[i], "%lldx%lldx%lld", &m, &n, &k) != 3 || m < 1 || n < 1 || k < 1 ||
        k % step != 0) {
      std::fprintf(stderr, "usage: %s [MxNxK ...] with K a multiple of %lld, not %s\n", texts[0],
                   static_cast<long long>(step), texts[i]);
      return 2;
    }
    sizes.push_back({m, n, k});
  }
  try {
    const pinned_threads pinned;
    limit_probe probe(omp_get_max_threads());
    for (const product_size& size : sizes) compare(size, probe);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}

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
