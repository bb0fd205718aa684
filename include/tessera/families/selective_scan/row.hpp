// How a row of elementwise recurrences becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::selective_scan {
namespace cpu {
// Defined in kernels/selective_scan/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const selective_scan_kernel_args& args, int threads);
template <class Kernel>
status launch(const selective_scan_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/selective_scan/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const selective_scan_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const selective_scan_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::selective_scan

template <>
struct table_entry<selective_scan_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::selective_scan::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "selective_scan", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      // A packed sequence of one chunk gets its last state from the carry if others are longer.
      if constexpr (Kernel::config.recurrence != scan_recurrence::rwkv4) {
        row.properties.batch_invariant = batch_invariance::none;
      }
      return row;
    } else {
      namespace target = kernels::selective_scan::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "selective_scan", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
