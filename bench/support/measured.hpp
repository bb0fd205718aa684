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
inline double value_of_goal(const measured_case& timing) {
  const std::string& what = timing.goal.quantity;
  return what == "peak"   ? timing.place.of_peak
         : what == "read" ? timing.place.of_read
         : what == "rate" ? timing.rate_to_beside
         : what == "time" ? timing.time_to_beside
                          : 0;
}
inline double share_of_goal(const measured_case& timing) {
  const double value = value_of_goal(timing);
  if (timing.goal.quantity.empty() || value <= 0) return 0;
  return timing.goal.quantity == "time" ? timing.goal.value / value : value / timing.goal.value;
}

/// Names and values of everything numeric. Those of value 0 say nothing and are left out.
inline std::vector<std::pair<std::string, double>> counters_of(const measured_case& timing) {
  std::vector<std::pair<std::string, double>> all{
      {"median_us", timing.time.median * 1e6},
      {"lower_quartile_us", timing.time.lower_quartile * 1e6},
      {"upper_quartile_us", timing.time.upper_quartile * 1e6},
      {"cpu_us", timing.cpu_seconds * 1e6},
      {"rounds", static_cast<double>(timing.time.rounds)},
      {"dropped_rounds", static_cast<double>(timing.dropped)},
      {"disturbed", timing.disturbed ? 1.0 : 0.0},
      {"steal_share", timing.steal_share},
      {"case_threads", static_cast<double>(timing.threads)},
      {"flops", timing.flops},
      {"bytes", timing.bytes},
      {"visible_pairs", timing.visible_pairs},
      {"GFLOP/s", timing.place.gflops},
      {"GB/s", timing.place.gbytes},
      {"peak_gflops", timing.above.peak_gflops},
      {"peak_gbytes", timing.above.read_gbytes},
      {"intensity", timing.place.intensity},
      {"attainable_gflops", timing.place.attainable},
      {"of_peak", timing.place.of_peak},
      {"of_read", timing.place.of_read},
      {"of_ceiling", timing.place.of_ceiling},
      {"matmul_gflops", timing.matmul_gflops},
      {"of_matmul", timing.matmul_gflops > 0 ? timing.place.gflops / timing.matmul_gflops : 0},
      {"error", timing.error},
      {"error_bound", timing.error_bound},
      {"time_to_beside", timing.time_to_beside},
      {"rate_to_beside", timing.rate_to_beside},
      {"goal", timing.goal.value},
      {"of_goal", share_of_goal(timing)}};
  std::erase_if(all, [](const auto& pair) { return pair.second == 0; });
  return all;
}

/// {"case": ..., "row": ..., "median_us": ..., ...} on one line.
inline std::string json_line(const std::string& name, const measured_case& timing) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + '"';
  };
  std::string line = "{\"case\": " + quoted(name);
  if (!timing.failure.empty()) return line + ", \"failure\": " + quoted(timing.failure) + "}";
  line += ", \"row\": " + quoted(timing.row);
  for (const auto& [counter, value] : counters_of(timing)) {
    char text[64];
    std::snprintf(text, sizeof text, "%.9g", value);
    line += ", " + quoted(counter) + ": " + text;
  }
  return line + "}";
}

/// Fills times, shares and ratios from the rounds. `reading`: which roof the rounds probed; the
/// other one, and that of rounds without a probe, is taken from `otherwise`. `beside_flops` are
/// those of the call beside.
inline void summarise(measured_case& timing, const alternation& taken, bool reading,
                      const roofs& otherwise, double beside_flops) {
  const auto median = [&](const auto& value) { return taken.of(value).median; };
  const double stand_in = reading ? otherwise.read_gbytes : otherwise.peak_gflops;
  const auto limit_of = [&](const alternated_round& r) { return r.limit > 0 ? r.limit : stand_in; };
  timing.time = taken.of([](const alternated_round& r) { return r.seconds; });
  timing.cpu_seconds = median([](const alternated_round& r) { return r.cpu_seconds; });
  timing.dropped = taken.dropped;
  timing.disturbed = taken.disturbed;
  timing.above = otherwise;
  (reading ? timing.above.read_gbytes : timing.above.peak_gflops) = median(limit_of);
  timing.place = place(timing.flops, timing.bytes, timing.time.median, timing.above);
  const double rate = (reading ? timing.bytes : timing.flops) * 1e-9;
  const double share =
      median([&](const alternated_round& r) { return rate / r.seconds / limit_of(r); });
  (reading ? timing.place.of_read : timing.place.of_peak) = share;
  timing.place.of_ceiling = share;
  if (beside_flops > 0) {
    timing.time_to_beside =
        median([](const alternated_round& r) { return r.seconds / r.beside_seconds; });
    timing.rate_to_beside = timing.flops / beside_flops / timing.time_to_beside;
  }
}

}  // namespace tessera::bench
