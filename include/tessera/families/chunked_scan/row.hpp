// How a row of linear attention with decay becomes an instance: for the generated table, and for
// rows of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/chunked_scan/args.hpp>
#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::chunked_scan {
namespace cpu {
// Defined in kernels/chunked_scan/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const chunked_scan_kernel_args& args, int threads);
template <class Kernel>
status launch(const chunked_scan_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/chunked_scan/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const chunked_scan_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const chunked_scan_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::chunked_scan

template <>
struct table_entry<chunked_scan_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::chunked_scan::sm80;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "chunked_scan", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else {
      namespace target = kernels::chunked_scan::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "chunked_scan", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
