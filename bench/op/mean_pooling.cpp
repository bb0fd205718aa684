// Mean pooling over the problems of bench/shapes: each is verified against the definition on some
// columns of some sequences, then timed through a plan, in turn with the limit that binds it.
#include <cstdio>
#include <exception>
#include <string>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/pooling_workload.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"
#include "bench/support/rounds.hpp"
#include "tests/support/compare.hpp"

namespace {

using namespace tessera;

bench::measured_case measure_case(const bench::bench_case& one,
                                  const mean_pooling_problem& problem) {
  bench::measured_case found;
  const result<mean_pooling_plan> made = plan(problem, {.threads = one.threads});
  if (!made) {
    found.failure = made.message();
    return found;
  }
  const bench::pooling_workload work(problem, 3 * bench::last_level_cache_bytes());
  if (const status done = made->run(work.args()); !done) {
    found.failure = done.message();
    return found;
  }
  const support::comparison verdict = bench::verify(problem, work.args());
  found.error = verdict.error;
  found.error_bound = verdict.bound;
  found.row = std::string(made->choice().row());
  found.threads = made->threads();
  found.bytes = work.bytes();
  const mean_pooling_sizes sizes = demand_of(problem).sizes;
  found.flops = static_cast<double>(sizes.tokens) * static_cast<double>(sizes.columns);
  found.goal = one.goal;
  if (!verdict.passed) {
    found.failure = support::sentence_of(verdict, "result", {dtype::f64, 1, {sizes.columns}});
    return found;
  }
  bench::take_rounds(
      found, made->choice().instance->target,
      [&](std::size_t index) { return static_cast<bool>(made->run(work.args(index))); },
      bench::nothing_beside{});
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (!bench::register_cases<mean_pooling_problem>(TESSERA_SHAPES_DIR, mean_pooling_ops,
                                                     measure_case)) {
      return 2;
    }
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
