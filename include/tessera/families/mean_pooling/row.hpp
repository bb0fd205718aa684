// How a mean pooling row becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::mean_pooling {
namespace cpu {
// Defined in kernels/mean_pooling/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const mean_pooling_kernel_args& args, int threads);
template <class Kernel>
status launch(const mean_pooling_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/mean_pooling/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const mean_pooling_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const mean_pooling_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::mean_pooling

template <>
struct table_entry<mean_pooling_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::mean_pooling::sm80;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "mean_pooling", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else {
      namespace target = kernels::mean_pooling::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "mean_pooling", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
