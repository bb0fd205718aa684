// How a row of fused losses becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::losses::cpu {
// Defined in kernels/losses/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const losses_kernel_args& args, int threads);
template <class Kernel>
status launch(const losses_kernel_args& args, const launch_context& context);
}  // namespace kernels::losses::cpu

template <>
struct table_entry<losses_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    namespace target = kernels::losses::cpu;
    return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
        "losses", name, resolved_config<Kernel>);
  }
};

}  // namespace tessera
