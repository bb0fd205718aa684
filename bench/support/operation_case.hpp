// Cases of any operation: what is known of one before it is timed, and the verdict on its results.
#pragma once

#include <string>
#include <string_view>

#include <tessera/runtime/operation.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/workload.hpp"

namespace tessera::bench {

/// Who computes a case, and what that costs on paper.
inline measured_case described(std::string_view row, int threads, const workload& tensors,
                               const case_goal& goal) {
  const reference::call_work counted = tensors.work();
  measured_case found;
  found.row = std::string(row);
  found.threads = threads;
  found.flops = counted.flops;
  found.bytes = counted.bytes;
  found.visible_pairs = counted.visible_pairs;
  found.goal = goal;
  return found;
}

/// Judges what round 0 has computed in host memory; false if it is out of bound, and `found` says
/// so.
inline bool verify(const workload& tensors, measured_case& found) {
  const support::judged_output verdict = tensors.verdict();
  found.error = verdict.found.error;
  found.error_bound = verdict.found.bound;
  found.failure = verdict.complaint();
  return verdict.found.passed;
}

/// Measures a problem of any operation, whose large tensors come from memory, in turn with the
/// limit that binds it.
inline measured_case measure_alone(const bench_case& timing, const problem_view& problem) {
  const family& kind = *operation_named(problem.op->name).kind;
  const result<operation_plan> plan = plan_operation(kind, problem, {.threads = timing.threads});
  if (!plan) return {.failure = plan.message()};
  const workload tensors(problem, {.cold_bytes = 3 * last_level_cache_bytes()});
  if (const status done = plan->run(tensors.tensors().data()); !done) {
    return {.failure = done.message()};
  }
  measured_case found = described(plan->choice().row(), plan->threads(), tensors, timing.goal);
  if (!verify(tensors, found)) return found;
  take_rounds(
      found, plan->choice().instance->target,
      [&](std::size_t index) { return bool(plan->run(tensors.tensors(index).data())); },
      nothing_beside{});
  return found;
}

}  // namespace tessera::bench
