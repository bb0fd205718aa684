// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::grouped_matmul_config config{.target =
//                                                                tessera::native_cpu_backend};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cpu{},
//                                                  tessera::epilogue::silu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/direct_op.hpp>
#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/fits.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/grouped_matmul/cpu/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as the
/// operation, and nothing is looked up. With group_sizes it is grouped_matmul, with d_out the
/// gradients. Every element of out becomes what `epilogue` (families/grouped_matmul/epilogue.hpp)
/// makes of it, but those of rows of no group, which no product is behind. It has no gradients.
template <class Row, class Epilogue = no_epilogue>
status launch(const grouped_matmul_args& args, const grouped_matmul_options& options,
              const cpu& where = {}, const Epilogue& epilogue = {}) {
  if (status done = check_epilogue<Epilogue>(args.d_out.present()); !done) return done;
  if (status done = direct::check_tiles_of<Row>(); !done) return done;
  return direct::launch_on_cpu<kernels::grouped_matmul::cpu::launcher, Row>(
      direct_op(args), args, options, where, epilogue);
}

/// The same of elements of 8 bits with scales.
template <class Row, class Epilogue = no_epilogue>
status launch(const scaled_matmul_args& args, const scaled_matmul_options& options,
              const cpu& where = {}, const Epilogue& epilogue = {}) {
  if (status done = direct::check_tiles_of<Row>(); !done) return done;
  return direct::launch_on_cpu<kernels::grouped_matmul::cpu::launcher, Row>(
      direct_op(args), args, options, where, epilogue);
}

/// The same with default options.
template <class Row>
status launch(const grouped_matmul_args& args, const cpu& where = {}) {
  return launch<Row>(args, grouped_matmul_options{}, where);
}

}  // namespace tessera
