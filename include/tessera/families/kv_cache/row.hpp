// How a cache row becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::kv_cache {
namespace cpu {
// Defined in kernels/kv_cache/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const kv_cache_kernel_args& args, int threads);
template <class Kernel>
status launch(const kv_cache_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/kv_cache/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const kv_cache_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const kv_cache_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::kv_cache

template <>
struct table_entry<kv_cache_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::kv_cache::sm80;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "kv_cache", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else {
      namespace target = kernels::kv_cache::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "kv_cache", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
