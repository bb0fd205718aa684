// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::quantized_config config{.target = tessera::native_cpu_backend,
//                                                       .pass = tessera::quantized_pass::forward};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/fits.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/product_args.hpp>
#include <tessera/families/quantized/weight_args.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/quantized/cpu/launch.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row`, which quantizes or dequantizes, on the CPU: same arguments, options,
/// checks and results as the operation, and nothing is looked up.
template <class Row>
status launch(const weight_args& args, const quantized_options& options, const cpu& where = {}) {
  constexpr quantized_pass pass = Row::config.pass;
  static_assert(pass == quantized_pass::quantize || pass == quantized_pass::dequantize);
  constexpr weight_op op =
      pass == quantized_pass::quantize ? weight_op::quantize : weight_op::dequantize;
  return direct::launch_on_cpu<kernels::quantized::cpu::launcher, Row>(op, args, options, where);
}

/// The same of a product with packed weights, or of its gradients; with group_sizes that of groups.
template <class Row>
status launch(const quantized_matmul_args& args, const quantized_options& options,
              const cpu& where = {}) {
  static_assert(is_product(Row::config.pass));
  if constexpr (multiplies_tiles(Row::config)) {
    using isa_type = typename isa::of<Row::config.target>::type;
    if (status done = direct::check_tiles<isa_type>(); !done) return done;
  }
  return direct::launch_on_cpu<kernels::quantized::cpu::launcher, Row>(
      product_op(Row::config.pass, args), args, options, where);
}

}  // namespace tessera
