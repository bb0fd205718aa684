// Where the calls of a test program run: on the host, or on a device with copies of the tensors. A
// program has one place and the tests of one family: a place.cpp defines what these need.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/backend.hpp>
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

/// The problem of a call whose tensors lie here.
flash_problem problem_here(const flash_attention_args& args, const flash_attention_options& options,
                           flash_op op);

/// Runs a call through the public API. Tensors lie on the host, and outputs are there afterwards;
/// a place with memory of its own also checks that nothing but the outputs was written there.
status run_here(flash_op op, const flash_attention_args& args,
                const flash_attention_options& options, const context& where);

status run_here(mean_pooling_op op, const mean_pooling_args& args,
                const mean_pooling_options& options, const context& where);

}  // namespace tessera::support
