// Launches of the kernels of caches on the CPU.
#pragma once

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/kv_cache/cpu/append.hpp>
#include <tessera/kernels/kv_cache/cpu/copy.hpp>
#include <tessera/prim/cpu/isa.hpp>

namespace tessera::kernels::kv_cache::cpu {

/// The launch of what a row does.
template <class Kernel>
struct launcher {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = kv_cache_kernel_args;

  static auto of(const args_type& args) {
    return launch_without_workspace{[&args](int threads) {
      using isa_type = typename isa::of<Kernel::config.target>::type;
      if constexpr (Kernel::config.pass == kv_cache_pass::append) {
        append<isa_type>(args.append, threads);
      } else {
        copy<isa_type>(args.copy, threads);
      }
    }};
  }
};

}  // namespace tessera::kernels::kv_cache::cpu
