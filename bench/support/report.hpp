// The frame of every bench program: ceilings measured first and kept in the JSON, a table with
// aligned columns at the end. Programs register benchmarks and call `run_benches`.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/support/ceilings.hpp"
#include "bench/support/timing.hpp"

namespace tessera::bench {

/// The ceilings of this run, measured at the first call.
inline const ceilings& this_run_ceilings() {
  static const ceilings measured = measure_ceilings();
  return measured;
}

/// Times `work(round)` in the benchmark's own rounds; returns their statistics.
template <class Work>
timing measure_in(benchmark::State& state, Work&& work) {
  std::vector<double> seconds;
  std::size_t round = 0;
  for (auto _ : state) {
    const double start = now_seconds();
    work(round++);
    seconds.push_back(now_seconds() - start);
    state.SetIterationTime(seconds.back());
  }
  return statistics_of(std::move(seconds));
}

/// Collects finished cases and prints them as one table: two lines a case, the numbers with the
/// case's name and below it the label, which is the row. The counters it shows are `median_us`,
/// `GFLOP/s`, `GB/s` and `of_ceiling`; a case has those that say something about it.
class table_reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Aggregate) continue;
      line one;
      one.name = run.benchmark_name().substr(0, run.benchmark_name().find("/manual_time"));
      one.note = run.error_occurred ? run.error_message : run.report_label;
      one.failed = run.error_occurred;
      one.median = value_of(run, "median_us");
      one.gflops = value_of(run, "GFLOP/s");
      one.gbytes = value_of(run, "GB/s");
      one.of_ceiling = value_of(run, "of_ceiling");
      any_failed_ = any_failed_ || one.failed;
      std::fprintf(stderr, "  %s\n", one.name.c_str());
      lines_.push_back(std::move(one));
    }
  }

  void Finalize() override {
    std::printf("%12s  %8s  %7s  %7s  %s\n", "median us", "GFLOP/s", "GB/s", "ceiling",
                "case, row");
    for (const line& one : lines_) {
      const std::string share =
          one.of_ceiling > 0 ? text(one.of_ceiling * 100, 6, 1) + "%" : text(0, 7, 0);
      std::printf("%s  %s  %s  %s  %s\n", text(one.median, 12, 3).c_str(),
                  text(one.gflops, 8, 1).c_str(), text(one.gbytes, 7, 1).c_str(), share.c_str(),
                  one.name.c_str());
      std::printf("%42s%s%s\n", "", one.failed ? "FAILED: " : "", one.note.c_str());
    }
    const ceilings& limits = this_run_ceilings();
    std::printf(
        "ceilings, %d threads: f32 FMA %.1f GFLOP/s, bf16 dot %.1f, read %.1f GB/s, copy %.1f\n",
        limits.threads, limits.fma_f32_gflops, limits.bf16_dot_gflops, limits.read_gbytes,
        limits.copy_gbytes);
  }

  bool any_failed() const noexcept { return any_failed_; }

 private:
  struct line {
    std::string name;
    std::string note;  ///< the row, or what went wrong
    bool failed = false;
    double median = 0;
    double gflops = 0;
    double gbytes = 0;
    double of_ceiling = 0;
  };

  static double value_of(const Run& run, const char* counter) {
    const auto found = run.counters.find(counter);
    return found == run.counters.end() ? 0.0 : found->second.value;
  }

  static std::string text(double value, int width, int digits) {
    char buffer[40];
    if (value > 0) {
      std::snprintf(buffer, sizeof buffer, "%*.*f", width, digits, value);
    } else {
      std::snprintf(buffer, sizeof buffer, "%*s", width, "-");
    }
    return buffer;
  }

  std::vector<line> lines_;
  bool any_failed_ = false;
};

/// Runs what is registered. Takes Google Benchmark's flags (`--benchmark_filter`,
/// `--benchmark_out`); status 1 if a case failed its verification.
inline int run_benches(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const ceilings& limits = this_run_ceilings();
  benchmark::AddCustomContext("threads", std::to_string(limits.threads));
  benchmark::AddCustomContext("fma_f32_gflops", std::to_string(limits.fma_f32_gflops));
  benchmark::AddCustomContext("bf16_dot_gflops", std::to_string(limits.bf16_dot_gflops));
  benchmark::AddCustomContext("read_gbytes", std::to_string(limits.read_gbytes));
  benchmark::AddCustomContext("copy_gbytes", std::to_string(limits.copy_gbytes));
  table_reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return reporter.any_failed() ? 1 : 0;
}

}  // namespace tessera::bench
