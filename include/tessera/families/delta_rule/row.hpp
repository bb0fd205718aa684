// How a delta rule row becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::delta_rule {
namespace cpu {
// Defined in kernels/delta_rule/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const delta_rule_kernel_args& args, int threads);
template <class Kernel>
status launch(const delta_rule_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/delta_rule/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const delta_rule_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const delta_rule_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::delta_rule

template <>
struct table_entry<delta_rule_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::delta_rule::sm80;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "delta_rule", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else {
      namespace target = kernels::delta_rule::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "delta_rule", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
