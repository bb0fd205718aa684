// The header path against the compiled table, same row, same problem: what is compiled into this
// unit may not be slower than what the library was built with. Needs the flags of the AVX-512 rows;
// compiled without them it has nothing to compare and says so.
#include "bench/support/report.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <string>

#include <tessera/api/flash_attention.hpp>
#include <tessera/launch.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>

#include "bench/support/sampled_check.hpp"
#include "bench/support/work.hpp"
#include "bench/support/workload.hpp"

namespace {

using namespace tessera;

struct table_row {
  static constexpr flash_config config{.target = backend::cpu_avx512,
                                       .type = dtype::f32,
                                       .head_dim = 128,
                                       .block_q = 112,
                                       .block_kv = 256};
};

flash_problem causal_prompt() {
  flash_problem problem;
  problem.q = {dtype::f32, 4, {1, 2048, 8, 128}};
  problem.k = problem.v = problem.q;
  problem.options.causal = true;
  return problem;
}

template <class Run>
void measure_path(benchmark::State& state, const bench::workload& work, const Run& run) {
  if (const status done = run(); !done) return state.SkipWithError(done.message().c_str());
  if (!bench::sampled_check(work.args(), work.options()).passed) {
    return state.SkipWithError("out is out of bound");
  }
  const bench::timing time = bench::measure_in(state, [&](std::size_t) {
    if (!run()) state.SkipWithError("a timed run was refused");
  });
  const bench::work counted = bench::work_of(work.args(), work.options());
  state.SetLabel(std::string(name_of(table_row::config).view()));
  state.counters["median_us"] = time.median * 1e6;
  state.counters["GFLOP/s"] = counted.flops / time.median * 1e-9;
  state.counters["of_ceiling"] =
      counted.flops / time.median * 1e-9 / bench::this_run_ceilings().fma_f32_gflops;
}

void header_path(benchmark::State& state) {
  const bench::workload work(causal_prompt());
  const flash_attention_args args = work.args();
  measure_path(state, work, [&] { return launch<table_row>(args, work.options(), cpu{}); });
}

void compiled_table(benchmark::State& state) {
  const bench::workload work(causal_prompt());
  const flash_attention_args args = work.args();
  const auto name = name_of(table_row::config);
  const result<flash_plan> made = plan(causal_prompt(), {.row = name.view()});
  if (!made) return state.SkipWithError(made.message().c_str());
  measure_path(state, work, [&] { return made->run(args); });
}

}  // namespace

int main(int argc, char** argv) {
  // Twice each, so that a drift of the clock shows as a difference of a path with itself.
  for (const char* round : {"first", "second"}) {
    benchmark::RegisterBenchmark((std::string("header_path/compiled_table_") + round).c_str(),
                                 compiled_table)
        ->UseManualTime();
    benchmark::RegisterBenchmark((std::string("header_path/header_path_") + round).c_str(),
                                 header_path)
        ->UseManualTime();
  }
  return tessera::bench::run_benches(argc, argv);
}

#else

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("header_path/none", [](benchmark::State& state) {
    state.SkipWithError("compiled without the flags of the AVX-512 rows");
  });
  return tessera::bench::run_benches(argc, argv);
}

#endif
