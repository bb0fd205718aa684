// Attention forward over the problems of bench/shapes/*.txt: each is verified against the
// definition on a sample of rows, then timed through a plan.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/problem_text.hpp>

#include "bench/support/report.hpp"
#include "bench/support/sampled_check.hpp"
#include "bench/support/work.hpp"
#include "bench/support/workload.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tessera;

/// Share of the ceiling that binds this call on this row.
double share_of_ceiling(const bench::work& counted, const flash_instance& row, double seconds) {
  const bench::ceilings& limits = bench::this_run_ceilings();
  const bool dots = row.config.target == backend::cpu_avx512_bf16;
  const double peak = dots ? limits.bf16_dot_gflops : limits.fma_f32_gflops;
  return std::max(counted.flops / peak, counted.touched_bytes / limits.read_gbytes) * 1e-9 /
         seconds;
}

void run_problem(benchmark::State& state, const flash_problem& problem) {
  const result<flash_plan> made = plan(problem);
  if (!made) return state.SkipWithError(made.message().c_str());
  // Decode reads keys and values once, in a server from memory.
  const bool decode = sizes_of(problem).q_len == 1;
  const bench::workload work(problem, decode ? 3 * bench::last_level_cache_bytes() : 0);
  if (const status done = made->run(work.args()); !done) {
    return state.SkipWithError(done.message().c_str());
  }
  const support::comparison verdict = bench::sampled_check(work.args(), work.options());
  if (!verdict.passed) {
    const std::string message =
        support::sentence_of(verdict, "out", {dtype::f64, 1, {work.args().out.elements()}});
    return state.SkipWithError(message.c_str());
  }
  const bench::timing time = bench::measure_in(state, [&](std::size_t round) {
    if (!made->run(work.args(round))) state.SkipWithError("a timed run was refused");
  });
  const bench::work counted = bench::work_of(work.args(), work.options());
  state.SetLabel(std::string(made->choice().row()));
  state.counters["median_us"] = time.median * 1e6;
  state.counters["GFLOP/s"] = counted.flops / time.median * 1e-9;
  state.counters["GB/s"] = counted.touched_bytes / time.median * 1e-9;
  state.counters["of_ceiling"] = share_of_ceiling(counted, *made->choice().instance, time.median);
}

/// Registers every line of a shape file that is neither empty nor a comment; false if one is not a
/// problem.
bool register_file(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  int number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const result<flash_problem> problem = parse_problem(line);
    if (!problem) {
      std::fprintf(stderr, "%s:%d: %s\n", path.c_str(), number, problem.message().c_str());
      return false;
    }
    const std::string name = path.stem().string() + "/" + to_text(*problem);
    benchmark::RegisterBenchmark(name.c_str(), [problem = *problem](benchmark::State& state) {
      run_problem(state, problem);
    })->UseManualTime();
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(TESSERA_SHAPES_DIR)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      if (!register_file(file)) return 2;
    }
    return tessera::bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
