// Operations that stand beside no other call: each problem of bench/shapes is verified against the
// definition on a sample of its outputs, then timed through a plan, in turn with the limit that
// binds it.
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include <benchmark/benchmark.h>

#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

constexpr std::array<std::string_view, 5> operations{
    "mean_pooling", "mean_pooling_chunks", "mean_pooling_backward", "mean_pooling_chunks_backward",
    "ragged_decode_attention"};

bench::measured_case measure_case(const bench::bench_case& one) {
  const std::size_t end = one.problem.find(' ');
  const operation& op = *operation_named(one.problem.substr(0, end)).op;
  const result<owned_problem> problem = parse_problem(op, one.problem.substr(end + 1));
  if (!problem) return {.failure = problem.message()};
  return bench::measure_alone(one, problem->view());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (const bench::bench_case& one : bench::read_cases(TESSERA_SHAPES_DIR, operations)) {
      benchmark::RegisterBenchmark(
          bench::name_of(one).c_str(),
          [one](benchmark::State& state) { bench::put(state, measure_case(one)); })
          ->Iterations(1)
          ->UseManualTime();
    }
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
