// Attention: choose once, run many times.
//
//   auto plan = tessera::plan(tessera::problem_of(args, options));
//   if (!plan) return report(plan.message());
//   for (...) if (auto done = plan->run(args); !done) return report(done.message());
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Biases, masks and sinks may broadcast other axes than planned; lse, row_max and dropout_mask may
/// be present or not.
using flash_plan = basic_plan<flash_problem>;

/// Checks the problem, chooses a row and reserves its scratch memory (none if context.workspace is
/// given: that memory is used instead and must outlive the plan). Refuses what the operation itself
/// would refuse, and problems that no row of this build takes.
result<flash_plan> plan(const flash_problem& problem, const context& context = {});

/// The whole choice as data: every tier's answer, every row with its predicted time or the reason
/// why it cannot run, and the row that would serve better. Runs nothing. `device` describes a
/// machine that need not be there; null: this one.
result<explanation> explain(const flash_problem& problem, const context& context = {},
                            const device_facts* device = nullptr);

}  // namespace tessera
