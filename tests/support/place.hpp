// Where the calls of a test program run: on the host, or on a device with copies of the tensors. A
// program has one place: its place.cpp defines what is declared here.
#pragma once

#include <functional>

#include <tessera/api/context.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::support {

/// Kind of device whose rows this program tests.
device_kind kind_here();

/// Whether rows of that backend run here.
bool runs_here(backend target);

/// Whether the library sees the values of integer tensors, so that wrong lengths are refused. In
/// device memory it does not look at them.
bool sees_values_here();

/// The circumstances of a plan or explanation for this place.
context context_here(context where);

/// The problem of a call whose tensors lie on the host, as it is where the call runs.
problem_view problem_here(problem_view call);

/// A call or a run of a plan, on tensors in this place.
using placed_run = std::function<status(const tensor_view* tensors, const context& where)>;

/// Runs a call of the tensors that `call` has on the host, where outputs are afterwards; a place
/// with memory of its own also checks that nothing but the outputs was written there.
status run_here(const problem_view& call, const context& where, const placed_run& run);

/// The same through the public API.
status call_here(const family& kind, const problem_view& call, const context& where = {});

}  // namespace tessera::support
