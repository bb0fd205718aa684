// How a row of fused losses becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::losses {
namespace cpu {
// Defined in kernels/losses/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const losses_kernel_args& args, int threads);
template <class Kernel>
status launch(const losses_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/losses/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const losses_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const losses_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::losses

template <>
struct table_entry<losses_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::losses::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "losses", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      // The number of tokens decides how many classes a product has at a time.
      if constexpr (Kernel::config.loss == loss_kind::linear_cross_entropy) {
        row.properties.batch_invariant = batch_invariance::none;
      }
      return row;
    } else {
      namespace target = kernels::losses::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "losses", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
