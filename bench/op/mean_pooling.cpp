// Mean pooling over the problems of bench/shapes: each is verified against the definition on some
// columns of every sequence, then timed through a plan, in turn with the limit that binds it.
#include <cstdio>
#include <exception>

#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/registry.hpp>

#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

bench::measured_case measure_case(const bench::bench_case& one,
                                  const mean_pooling_problem& problem) {
  return bench::measure_alone(one, view_of(problem));
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
