// Cases of page_attention: their registration with Google Benchmark, and the call beside each.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include <tessera/families/attention/lower.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/report.hpp"
#include "tests/reference/dense_pages.hpp"

namespace tessera::bench {

/// Attention on the keys and values of the sequences, all of them full, in one piece.
inline flash_problem dense_problem(const page_problem& paged) {
  flash_problem dense{.tensors = reference::dense_shapes(paged.tensors, paged.options),
                      .options = reference::dense_options(paged.options)};
  dense.tensors.seqlens_k = {};
  return dense;
}

/// Registers the cases of a folder, each measured by `measure(case, problem)`; false if one is not
/// a problem of page_attention, and says which.
template <class Measure>
bool register_page_cases(const std::string& folder, const Measure& measure) {
  constexpr std::array<std::string_view, 1> ops{"page_attention"};
  for (const bench_case& one : read_cases(folder, ops)) {
    const result<page_problem> problem = parse_problem<page_problem>(one.problem);
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
