// What is known of a case once it was measured, and the forms it is told in: counters of Google
// Benchmark (build/bench/*.json) and one JSON object on a line (--problems).
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/alternate.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/roofline.hpp"

namespace tessera::bench {

struct measured_case {
  std::string failure{};  ///< empty, or why there is nothing else
  std::string row{};
  int threads = 0;
  timing time{};           ///< of one call
  double cpu_seconds = 0;  ///< of one call, all threads
  double flops = 0;
  double bytes = 0;  ///< touched by one call
  double visible_pairs = 0;
  roofs above{};      ///< medians next to the rounds
  placement place{};  ///< of the median; shares are medians over the rounds
  double error = 0;   ///< largest scaled error of the sampled rows against the definition in double
  double error_bound = 0;
  double matmul_gflops = 0;   ///< of a GPU's own library of matrix products; 0: not known
  double time_to_beside = 0;  ///< median over the rounds; 0 if there is nothing beside
  double rate_to_beside = 0;  ///< ratio of the operations per second
  std::size_t dropped = 0;
  bool disturbed = false;
  double steal_share = 0;  ///< of the time the case took, by the hypervisor
  case_goal goal{};
};

/// The quantity the case is held to, and that over the goal: 1 or more where it is reached.
inline double value_of_goal(const measured_case& one) {
  const std::string& what = one.goal.quantity;
  return what == "peak"   ? one.place.of_peak
         : what == "read" ? one.place.of_read
         : what == "rate" ? one.rate_to_beside
         : what == "time" ? one.time_to_beside
                          : 0;
}
inline double share_of_goal(const measured_case& one) {
  const double value = value_of_goal(one);
  if (one.goal.quantity.empty() || value <= 0) return 0;
  return one.goal.quantity == "time" ? one.goal.value / value : value / one.goal.value;
}

/// Names and values of everything numeric. Those of value 0 say nothing and are left out.
inline std::vector<std::pair<std::string, double>> counters_of(const measured_case& one) {
  std::vector<std::pair<std::string, double>> all{
      {"median_us", one.time.median * 1e6},
      {"lower_quartile_us", one.time.lower_quartile * 1e6},
      {"upper_quartile_us", one.time.upper_quartile * 1e6},
      {"cpu_us", one.cpu_seconds * 1e6},
      {"rounds", static_cast<double>(one.time.rounds)},
      {"dropped_rounds", static_cast<double>(one.dropped)},
      {"disturbed", one.disturbed ? 1.0 : 0.0},
      {"steal_share", one.steal_share},
      {"case_threads", static_cast<double>(one.threads)},
      {"flops", one.flops},
      {"bytes", one.bytes},
      {"visible_pairs", one.visible_pairs},
      {"GFLOP/s", one.place.gflops},
      {"GB/s", one.place.gbytes},
      {"peak_gflops", one.above.peak_gflops},
      {"peak_gbytes", one.above.read_gbytes},
      {"intensity", one.place.intensity},
      {"attainable_gflops", one.place.attainable},
      {"of_peak", one.place.of_peak},
      {"of_read", one.place.of_read},
      {"of_ceiling", one.place.of_ceiling},
      {"matmul_gflops", one.matmul_gflops},
      {"of_matmul", one.matmul_gflops > 0 ? one.place.gflops / one.matmul_gflops : 0},
      {"error", one.error},
      {"error_bound", one.error_bound},
      {"time_to_beside", one.time_to_beside},
      {"rate_to_beside", one.rate_to_beside},
      {"goal", one.goal.value},
      {"of_goal", share_of_goal(one)}};
  std::erase_if(all, [](const auto& pair) { return pair.second == 0; });
  return all;
}

/// {"case": ..., "row": ..., "median_us": ..., ...} on one line.
inline std::string json_line(const std::string& name, const measured_case& one) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + '"';
  };
  std::string line = "{\"case\": " + quoted(name);
  if (!one.failure.empty()) return line + ", \"failure\": " + quoted(one.failure) + "}";
  line += ", \"row\": " + quoted(one.row);
  for (const auto& [counter, value] : counters_of(one)) {
    char text[64];
    std::snprintf(text, sizeof text, "%.9g", value);
    line += ", " + quoted(counter) + ": " + text;
  }
  return line + "}";
}

/// Fills times, shares and ratios from the rounds. `reading`: which roof the rounds probed; the
/// other one, and that of rounds without a probe, is taken from `otherwise`. `beside_flops` are
/// those of the call beside.
inline void summarise(measured_case& one, const alternation& taken, bool reading,
                      const roofs& otherwise, double beside_flops) {
  const auto median = [&](const auto& value) { return taken.of(value).median; };
  const double stand_in = reading ? otherwise.read_gbytes : otherwise.peak_gflops;
  const auto limit_of = [&](const alternated_round& r) { return r.limit > 0 ? r.limit : stand_in; };
  one.time = taken.of([](const alternated_round& r) { return r.seconds; });
  one.cpu_seconds = median([](const alternated_round& r) { return r.cpu_seconds; });
  one.dropped = taken.dropped;
  one.disturbed = taken.disturbed;
  one.above = otherwise;
  (reading ? one.above.read_gbytes : one.above.peak_gflops) = median(limit_of);
  one.place = place(one.flops, one.bytes, one.time.median, one.above);
  const double rate = (reading ? one.bytes : one.flops) * 1e-9;
  const double share =
      median([&](const alternated_round& r) { return rate / r.seconds / limit_of(r); });
  (reading ? one.place.of_read : one.place.of_peak) = share;
  one.place.of_ceiling = share;
  if (beside_flops > 0) {
    one.time_to_beside =
        median([](const alternated_round& r) { return r.seconds / r.beside_seconds; });
    one.rate_to_beside = one.flops / beside_flops / one.time_to_beside;
  }
}

}  // namespace tessera::bench
