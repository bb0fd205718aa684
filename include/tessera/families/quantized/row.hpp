// How a row of quantised weights becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::quantized {
namespace cpu {
// Defined in kernels/quantized/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int threads);
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/quantized/sm80/launch.hpp and kernels/quantized/sm90/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
namespace sm90 {
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm90
}  // namespace kernels::quantized

template <>
struct table_entry<quantized_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (Kernel::config.target == backend::cuda_sm90) {
      namespace target = kernels::quantized::sm90;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "quantized", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      row.properties.batch_invariant = batch_invariance::none;
      return row;
    } else if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::quantized::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "quantized", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      // A few rows of x have a kernel of their own.
      if constexpr (Kernel::config.pass == quantized_pass::forward) {
        row.properties.batch_invariant = batch_invariance::none;
      }
      return row;
    } else {
      namespace target = kernels::quantized::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "quantized", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
