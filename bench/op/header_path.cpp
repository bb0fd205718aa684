// The header path: one row compiled into the bench beside the same row of the compiled table (what
// a user compiles may not be slower than what the library was built with), then user functors
// beside the row without them. Needs the flags of the AVX-512 rows; compiled without them it has
// nothing to compare and says so.
#include "bench/support/report.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/launch.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/operation_case.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/workload.hpp"

namespace {

using namespace tessera;

constexpr int heads = 8;

struct table_row {
  static constexpr attention_config config{.target = backend::cpu_avx512,
                                           .type = dtype::f32,
                                           .head_dim = 128,
                                           .block_q = 896,
                                           .block_kv = 256};
};

/// Attention with linear biases: a slope per head times the distance.
struct alibi {
  std::array<float, heads> slope = [] {
    std::array<float, heads> all{};
    for (int h = 0; h < heads; ++h) {
      all[static_cast<std::size_t>(h)] = std::exp2(-8.0f * static_cast<float>(h + 1) / heads);
    }
    return all;
  }();
  TESSERA_HD float operator()(float score, const position& at) const {
    const auto distance = static_cast<float>(at.key - at.query_position);
    return score + slope[static_cast<std::size_t>(at.head)] * distance;
  }
};

/// Documents of 512 tokens that do not see each other.
struct same_document {
  TESSERA_HD bool operator()(const position& at) const { return at.key / 512 == at.query / 512; }
};

using prompt_tensors = bench::workload_of<flash_problem>;

flash_problem prompt() {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::f32, {1, 2048, heads, 128});
  problem.tensors.k = problem.tensors.v = problem.tensors.q;
  problem.options.causal = true;
  return problem;
}

/// Measures `run` beside `plain` on one set of tensors. What functors compute the tests judge;
/// `verified`: here the definition without functors is the judge.
template <class Run, class Plain>
bench::measured_case measure_path(const prompt_tensors& tensors, const Run& run, const Plain& plain,
                                  double most_time, bool verified) {
  const flash_attention_args args = tensors.args();
  bench::measured_case found = bench::described(
      name_of(table_row::config).view(), omp_get_max_threads(), tensors, {"time", most_time});
  for (const status& done : {plain(args), run(args)}) {
    if (!done) {
      found.failure = done.message();
      return found;
    }
  }
  if (verified && !bench::verify(tensors, found)) return found;
  bench::take_rounds(
      found, table_row::config.target, [&](std::size_t) { return static_cast<bool>(run(args)); },
      bench::call_beside{[&](std::size_t) { return static_cast<bool>(plain(args)); }, found.flops});
  return found;
}

template <class Hooks>
status launch_row(const prompt_tensors& tensors, const flash_attention_args& args,
                  const Hooks& hooks) {
  return launch<table_row>(args, tensors.options(), cpu{}, hooks);
}

void header_beside_table(benchmark::State& state) {
  const prompt_tensors tensors(prompt());
  const auto name = name_of(table_row::config);
  const result<flash_plan> made = plan(prompt(), {.row = name.view()});
  if (!made) return state.SkipWithError(made.message().c_str());
  bench::put(state,
             measure_path(
                 tensors,
                 [&](const flash_attention_args& args) {
                   return launch_row(tensors, args, flash_hooks<>{});
                 },
                 [&](const flash_attention_args& args) { return made->run(args); }, 1.05, true));
}

template <class Hooks>
void functor_beside_plain(benchmark::State& state, const Hooks& hooks) {
  const prompt_tensors tensors(prompt());
  bench::put(state,
             measure_path(
                 tensors,
                 [&](const flash_attention_args& args) { return launch_row(tensors, args, hooks); },
                 [&](const flash_attention_args& args) {
                   return launch_row(tensors, args, flash_hooks<>{});
                 },
                 1.25, false));
}

template <class Run>
void add(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(("header_path/" + name).c_str(), run)
      ->Iterations(1)
      ->UseManualTime();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string problem = to_text(prompt());
  add(problem, header_beside_table);
  add(problem + " functor=alibi",
      [](benchmark::State& state) { functor_beside_plain(state, with_logits(alibi{})); });
  add(problem + " functor=same_document",
      [](benchmark::State& state) { functor_beside_plain(state, with_mask(same_document{})); });
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
