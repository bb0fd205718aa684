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
#include <tessera/spec/status.hpp>

namespace tessera {

/// Biases, masks and sinks may broadcast other axes than planned; lse, row_max and dropout_mask may
/// be present or not.
using flash_plan = basic_plan<flash_problem>;

}  // namespace tessera
