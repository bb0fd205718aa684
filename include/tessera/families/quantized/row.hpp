// How a row of quantised weights becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::quantized::cpu {
// Defined in kernels/quantized/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int threads);
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context);
}  // namespace kernels::quantized::cpu

template <>
struct table_entry<quantized_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    namespace target = kernels::quantized::cpu;
    return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
        "quantized", name, resolved_config<Kernel>);
  }
};

}  // namespace tessera
