// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::mean_pooling_config config{.target = tessera::native_cpu_backend,
//                                                          .type = tessera::dtype::bf16};
//   };
//   tessera::status done = tessera::launch<my_row>(args, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/fits.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/mean_pooling/cpu/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as the
/// operation of the row's direction, and nothing is looked up. Tokens of rank 4 are means of
/// chunks.
///
/// Errors: those of the operation, and status_code::ineligible_row if the row's config does not
/// take the problem ("dtype is f16, the row has bf16").
template <class Row>
status launch(const mean_pooling_args& args, const mean_pooling_options& options,
              const cpu& where = {}) {
  constexpr bool backward = Row::config.pass == pooling_pass::backward;
  const bool chunks = (backward ? args.d_x : args.x).rank == 4;
  const mean_pooling_op op =
      backward ? (chunks ? mean_pooling_op::mean_pooling_chunks_backward
                         : mean_pooling_op::mean_pooling_backward)
               : (chunks ? mean_pooling_op::mean_pooling_chunks : mean_pooling_op::mean_pooling);
  return direct::launch_on_cpu<kernels::mean_pooling::cpu::launcher, Row>(op, args, options, where);
}

/// The same with default options.
template <class Row>
status launch(const mean_pooling_args& args, const cpu& where = {}) {
  return launch<Row>(args, mean_pooling_options{}, where);
}

}  // namespace tessera
