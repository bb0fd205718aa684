// Entry points of the kernels of caches on the CPU.
#pragma once

#include <cstddef>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/kv_cache/cpu/append.hpp>
#include <tessera/kernels/kv_cache/cpu/copy.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::kv_cache::cpu {

/// None is needed.
template <class Kernel>
std::size_t workspace_bytes(const kv_cache_kernel_args&, int) {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  return 0;
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const kv_cache_kernel_args& args, const launch_context& context) {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using isa_type = typename isa::of<Kernel::config.target>::type;
  if constexpr (Kernel::config.pass == kv_cache_pass::append) {
    append<isa_type>(args.append, context.threads);
  } else {
    copy<isa_type>(args.copy, context.threads);
  }
  return {};
}

}  // namespace tessera::kernels::kv_cache::cpu
