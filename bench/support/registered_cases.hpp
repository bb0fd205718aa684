// Cases of any operation, registered with Google Benchmark.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <benchmark/benchmark.h>

#include <tessera/runtime/operation.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/report.hpp"

namespace tessera::bench {

/// The problem of a line, of the operations that `Problem` is for; of any as owned_problem.
template <class Problem>
result<Problem> problem_in(std::string_view line) {
  if constexpr (std::is_same_v<Problem, owned_problem>) {
    const family* kind = nullptr;
    return parse_problem(line, kind);
  } else {
    return parse_problem<Problem>(line);
  }
}

/// Registers the cases of a folder, each measured by `measure(case, problem)`; false if one is not
/// a problem of `Problem`'s operations, and says which.
template <class Problem, class Measure>
bool register_cases(const std::string& folder, std::span<const std::string_view> ops,
                    const Measure& measure) {
  for (const bench_case& timing : read_cases(folder, ops)) {
    const result<Problem> problem = problem_in<Problem>(timing.problem);
    if (!problem) {
      std::fprintf(stderr, "%s: %s\n", timing.problem.c_str(), problem.message().c_str());
      return false;
    }
    benchmark::RegisterBenchmark(name_of(timing).c_str(),
                                 [timing, problem = *problem, measure](benchmark::State& state) {
                                   put(state, measure(timing, problem));
                                 })
        ->Iterations(1)
        ->UseManualTime();
  }
  return true;
}

}  // namespace tessera::bench
