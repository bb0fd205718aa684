// Cases of attention: what is known of one before it is timed, and the verdict on its results.
#pragma once

#include <string>
#include <string_view>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
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

}  // namespace tessera::bench
