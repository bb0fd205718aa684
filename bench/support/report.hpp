// The frame of every bench program: threads pinned, ceilings measured first and kept in the JSON, a
// table with aligned columns at the end. Programs register benchmarks and call `run_benches`.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/version.hpp>

#include "bench/support/ceilings.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/pinning.hpp"
#include "bench/support/this_run.hpp"
#include "bench/support/timing.hpp"

namespace tessera::bench {

/// Tells a measured case as the result of a benchmark of one iteration.
inline void put(benchmark::State& state, const measured_case& timing) {
  if (!timing.failure.empty()) return state.SkipWithError(timing.failure.c_str());
  for (auto _ : state) state.SetIterationTime(timing.time.median);
  state.SetLabel(timing.row);
  for (const auto& [name, value] : counters_of(timing)) state.counters[name] = value;
}

/// Collects finished cases and prints them as one table: two lines a case, the numbers with the
/// case's name and below it the label, which is the row. The counters it shows are `median_us`,
/// `GFLOP/s`, `GB/s`, `of_ceiling` and what `measured_case` has beyond; a case has those that say
/// something about it.
class table_reporter : public benchmark::BenchmarkReporter {
 public:
  /// `ceilings` is the last line.
  explicit table_reporter(std::string ceilings) : ceilings_(std::move(ceilings)) {}

  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Aggregate) continue;
      case_line line{run.run_name.function_name, {}, run.error_occurred, {}};
      line.note = run.error_occurred ? run.error_message : run.report_label;
      for (const auto& [name, counter] : run.counters) line.values[name] = counter.value;
      any_failed_ = any_failed_ || line.failed;
      std::fprintf(stderr, "%s ms %s  %s\n", text(line.at("median_us") * 1e-3, 10, 3).c_str(),
                   text(line.at("of_ceiling") * 100, 5, 1, "%").c_str(), line.name.c_str());
      lines_.push_back(std::move(line));
    }
  }

  void Finalize() override {
    std::printf("%12s  %8s  %7s  %7s  %s\n", "median us", "GFLOP/s", "GB/s", "ceiling",
                "case, row");
    for (const case_line& line : lines_) print(line);
    print_means();
    std::printf("%s\n", ceilings_.c_str());
  }

  bool any_failed() const noexcept { return any_failed_; }

 private:
  struct case_line {
    std::string name;
    std::string note;  ///< the row, or what went wrong
    bool failed = false;
    std::map<std::string, double> values;

    double at(const char* counter) const {
      const auto found = values.find(counter);
      return found == values.end() ? 0.0 : found->second;
    }
  };

  static std::string text(double value, int width, int digits, const char* unit = "") {
    char buffer[40];
    if (value > 0) {
      std::snprintf(buffer, sizeof buffer, "%*.*f%s", width, digits, value, unit);
    } else {
      std::snprintf(buffer, sizeof buffer, "%*s", width + static_cast<int>(*unit != 0), "-");
    }
    return buffer;
  }

  static void print(const case_line& line) {
    std::printf("%s  %s  %s  %s  %s\n", text(line.at("median_us"), 12, 3).c_str(),
                text(line.at("GFLOP/s"), 8, 1).c_str(), text(line.at("GB/s"), 7, 1).c_str(),
                text(line.at("of_ceiling") * 100, 6, 1, "%").c_str(), line.name.c_str());
    std::printf("%42s%s%s%s\n", "", line.failed ? "FAILED: " : "", line.note.c_str(),
                remarks(line).c_str());
  }

  /// What there is to say beyond the row: ratios, the goal, rounds that do not count.
  static std::string remarks(const case_line& line) {
    std::string all;
    const auto add = [&](const std::string& remark) { all += "; " + remark; };
    if (line.at("time_to_beside") > 0) {
      add("beside: time x" + text(line.at("time_to_beside"), 0, 3) + ", rate x" +
          text(line.at("rate_to_beside"), 0, 3));
    }
    if (line.at("of_matmul") > 0) add(text(line.at("of_matmul") * 100, 0, 1, "%") + " of matmul");
    if (line.at("of_goal") > 0) {
      add(text(line.at("of_goal") * 100, 0, 1, "%") + " of the goal " +
          text(line.at("goal"), 0, 2));
    }
    if (line.at("dropped_rounds") > 0) {
      add(text(line.at("dropped_rounds"), 0, 0) + " disturbed rounds left out");
    }
    if (line.at("disturbed") > 0) add("DISTURBED by other programs");
    return all;
  }

  /// Geometric means over the cases of a group, which is what a name has before its first slash.
  void print_means() const {
    struct mean {
      double sum = 0;
      int count = 0, held = 0, reached = 0;
    };
    std::map<std::string, mean> groups;
    for (const case_line& line : lines_) {
      if (line.at("of_ceiling") <= 0) continue;
      mean& group = groups[line.name.substr(0, line.name.find('/'))];
      group.sum += std::log(line.at("of_ceiling"));
      ++group.count;
      group.held += line.at("of_goal") > 0 ? 1 : 0;
      group.reached += line.at("of_goal") >= 1 ? 1 : 0;
    }
    for (const auto& [name, group] : groups) {
      std::printf("%s: %.1f%% of the ceiling in the geometric mean of %d case%s", name.c_str(),
                  100 * std::exp(group.sum / group.count), group.count,
                  group.count == 1 ? "" : "s");
      if (group.held > 0) std::printf(", %d of %d goals reached", group.reached, group.held);
      std::printf("\n");
    }
  }

  std::string ceilings_;
  std::vector<case_line> lines_;
  bool any_failed_ = false;
};

/// What a record says of the machine, beside the cases. Numbers whose names end in `_gflops` and
/// `_gbytes` are its ceilings.
struct machine_report {
  std::vector<std::pair<std::string, std::string>> facts{};
  std::string ceilings{};  ///< for people, one line

  void add(std::string name, double value) {
    facts.emplace_back(std::move(name), std::to_string(value));
  }
};

/// Measures the processor, if nobody has.
inline machine_report report_of_processor() {
  const ceilings& limits = this_run_ceilings();
  machine_report machine;
  machine.facts = {{"processor", std::string(this_device().product_name())},
                   {"threads", std::to_string(limits.threads)},
                   {"isa", std::string(limits.isa)},
                   {"read_pattern", std::string(limits.read_pattern)},
                   {"buffer_bytes", std::to_string(limits.buffer_bytes)}};
  machine.add("clock_ghz", limits.clock_ghz);
  machine.add("fma_f32_gflops", limits.fma_f32_gflops);
  machine.add("fma_avx2_gflops", limits.fma_avx2_gflops);
  machine.add("fma_f32_one_core_gflops", limits.fma_f32_one_core);
  machine.add("bf16_dot_gflops", limits.bf16_dot_gflops);
  if (limits.byte_dot_gops > 0) machine.add("byte_dot_gops", limits.byte_dot_gops);
  if (limits.amx_bf16_gflops > 0) machine.add("amx_bf16_gflops", limits.amx_bf16_gflops);
  machine.add("read_gbytes", limits.read_gbytes);
  machine.add("read_one_core_gbytes", limits.read_one_core);
  machine.add("copy_gbytes", limits.copy_gbytes);
  machine.add("round_trip_ns", limits.round_trip_ns);
  char text[320];
  std::snprintf(text, sizeof text,
                "ceilings, %d threads at %.2f GHz: f32 FMA %.1f GFLOP/s (%s; AVX2 %.1f), bf16 dot "
                "%.1f, read %.1f GB/s (%s), copy %.1f, a line to another thread and back %.0f ns",
                limits.threads, limits.clock_ghz, limits.fma_f32_gflops,
                std::string(limits.isa).c_str(), limits.fma_avx2_gflops, limits.bf16_dot_gflops,
                limits.read_gbytes, std::string(limits.read_pattern).c_str(), limits.copy_gbytes,
                limits.round_trip_ns);
  machine.ceilings = text;
  return machine;
}

inline void add_context(const machine_report& machine, const std::string& command) {
  for (const auto& [name, value] : machine.facts) benchmark::AddCustomContext(name, value);
  benchmark::AddCustomContext("version", std::string(version));
  benchmark::AddCustomContext("compiler", __VERSION__);
#if defined(NDEBUG)
  benchmark::AddCustomContext("assertions", "off");
#else
  benchmark::AddCustomContext("assertions", "on");
#endif
  benchmark::AddCustomContext("command", command);
}

/// Runs what is registered. Takes Google Benchmark's flags (`--benchmark_filter`,
/// `--benchmark_out`); status 1 if a case failed its verification. `report` tells of the machine
/// that the cases run on, once the processor's threads are pinned.
inline int run_benches(int argc, char** argv,
                       const std::function<machine_report()>& report = &report_of_processor) {
  std::string command;
  for (int i = 0; i < argc; ++i) command += std::string(i > 0 ? " " : "") + argv[i];
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  static_cast<void>(this_device());  // counts the processors that this process may use
  const pinned_threads pinned;
  const machine_report machine = report();
  add_context(machine, command);
  table_reporter reporter(machine.ceilings);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return reporter.any_failed() ? 1 : 0;
}

}  // namespace tessera::bench
