// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::delta_rule_config config{.target = tessera::native_cpu_backend,
//                                                        .type = tessera::dtype::bf16};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/fits.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/kernels/delta_rule/cpu/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as
/// kernel_delta_attention or, of a backward row, its gradient, and nothing is looked up.
///
/// Errors: those of the operation, and status_code::ineligible_row if the row's config does not
/// take the problem ("dtype is f16, the row has bf16").
template <class Row>
status launch(const delta_rule_args& args, const delta_rule_options& options,
              const cpu& where = {}) {
  constexpr delta_rule_op op = Row::config.pass == delta_rule_pass::forward
                                   ? delta_rule_op::kernel_delta_attention
                                   : delta_rule_op::kernel_delta_attention_backward;
  return direct::launch_on_cpu<kernels::delta_rule::cpu::launcher, Row>(op, args, options, where);
}

/// The same with default options.
template <class Row>
status launch(const delta_rule_args& args, const cpu& where = {}) {
  return launch<Row>(args, delta_rule_options{}, where);
}

}  // namespace tessera
