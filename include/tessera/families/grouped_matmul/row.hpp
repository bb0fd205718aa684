// How a row of grouped matrix products becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::grouped_matmul {
namespace cpu {
// Defined in kernels/grouped_matmul/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const grouped_matmul_kernel_args& args, int threads);
template <class Kernel>
status launch(const grouped_matmul_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/grouped_matmul/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const grouped_matmul_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const grouped_matmul_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80

// Likewise of kernels/grouped_matmul/sm90/launch.hpp.
namespace sm90 {
template <class Kernel>
std::size_t workspace_bytes(const grouped_matmul_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const grouped_matmul_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm90
}  // namespace kernels::grouped_matmul

template <>
struct table_entry<grouped_matmul_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (Kernel::config.target == backend::cuda_sm90) {
      namespace target = kernels::grouped_matmul::sm90;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "grouped_matmul", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::grouped_matmul::sm80;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "grouped_matmul", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else {
      namespace target = kernels::grouped_matmul::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "grouped_matmul", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
