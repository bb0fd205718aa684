// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::chunked_scan_config config{.target = tessera::native_cpu_backend,
//                                                          .type = tessera::dtype::bf16};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/chunked_scan/args.hpp>
#include <tessera/families/chunked_scan/fits.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/chunked_scan/options.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as `recurrent`,
/// or `recurrent_backward`, which take what those of gla and lightning_attn take, and nothing is
/// looked up.
///
/// Errors: those of the operation, and status_code::ineligible_row if the row's config does not
/// take the problem ("dtype is f16, the row has bf16").
template <class Row>
status launch(const recurrent_args& args, const recurrent_options& options, const cpu& where = {}) {
  constexpr bool backward = Row::config.pass == chunked_scan_pass::backward;
  return direct::launch_on_cpu<kernels::chunked_scan::cpu::launcher, Row>(
      backward ? recurrent_op::recurrent_backward : recurrent_op::recurrent, args, options, where);
}

/// The same for `rwkv6` and `rwkv6_backward`.
template <class Row>
status launch(const rwkv6_args& args, const rwkv6_options& options, const cpu& where = {}) {
  constexpr bool backward = Row::config.pass == chunked_scan_pass::backward;
  return direct::launch_on_cpu<kernels::chunked_scan::cpu::launcher, Row>(
      backward ? rwkv6_op::rwkv6_backward : rwkv6_op::rwkv6, args, options, where);
}

/// The same with default options.
template <class Row>
status launch(const recurrent_args& args, const cpu& where = {}) {
  return launch<Row>(args, recurrent_options{}, where);
}
template <class Row>
status launch(const rwkv6_args& args, const cpu& where = {}) {
  return launch<Row>(args, rwkv6_options{}, where);
}

}  // namespace tessera
