// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::kv_cache_config config{.target = tessera::native_cpu_backend};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/declaration.hpp>
#include <tessera/families/kv_cache/fits.hpp>
#include <tessera/families/kv_cache/options.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/kv_cache/cpu/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as the
/// operation of the row's pass, and nothing is looked up.
template <class Row>
status launch(const kv_cache_args& args, const kv_cache_options& options, const cpu& where = {}) {
  constexpr bool copies = Row::config.pass == kv_cache_pass::copy;
  const kv_cache_op op = copies ? kv_cache_op::kv_cache_copy : kv_cache_op::kv_cache_append;
  return direct::launch_on_cpu<kernels::kv_cache::cpu::launcher, Row>(op, args, options, where);
}

/// The same with default options.
template <class Row>
status launch(const kv_cache_args& args, const cpu& where = {}) {
  return launch<Row>(args, kv_cache_options{}, where);
}

}  // namespace tessera
