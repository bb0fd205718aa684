// Cases of attention: what is known of one before it is timed, the verdict on its results, and
// their registration with Google Benchmark.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/report.hpp"
#include "bench/support/sampled_check.hpp"
#include "bench/support/work.hpp"

namespace tessera::bench {

/// Who computes a case, and what that costs on paper.
inline measured_case described(std::string_view row, int threads, const work& counted,
                               const case_goal& goal) {
  measured_case found;
  found.row = std::string(row);
  found.threads = threads;
  found.flops = counted.flops;
  found.bytes = counted.touched_bytes;
  found.visible_pairs = counted.visible_pairs;
  found.goal = goal;
  return found;
}

/// Judges sampled rows of a call's results, in host memory, against the definition; false if they
/// are out of bound, and `found` says so.
inline bool verify(const flash_attention_args& args, const flash_attention_options& options,
                   measured_case& found) {
  const support::comparison verdict = sampled_check(args, options);
  found.error = verdict.error;
  found.error_bound = verdict.bound;
  if (!verdict.passed) {
    found.failure = support::sentence_of(verdict, "out", {dtype::f64, 1, {args.out.elements()}});
  }
  return verdict.passed;
}

/// Registers the cases of a folder, each measured by `measure(case, problem)`; false if one is not
/// a problem of attention, and says which.
template <class Measure>
bool register_attention_cases(const std::string& folder, std::span<const std::string_view> ops,
                              const Measure& measure) {
  for (const bench_case& one : read_cases(folder, ops)) {
    const result<flash_problem> problem = parse_problem<flash_problem>(one.problem);
    if (!problem) {
      std::fprintf(stderr, "%s: %s\n", one.problem.c_str(), problem.message().c_str());
      return false;
    }
    benchmark::RegisterBenchmark(name_of(one).c_str(),
                                 [one, problem = *problem, measure](benchmark::State& state) {
                                   put(state, measure(one, problem));
                                 })
        ->Iterations(1)
        ->UseManualTime();
  }
  return true;
}

}  // namespace tessera::bench
