// How a row of the gradients of attention becomes an instance: for the generated table, and for
// rows of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::attention_backward {
namespace cpu {
// Defined in kernels/attention_backward/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int threads);
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/attention_backward/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80

// Likewise of kernels/attention_backward/sm90/launch.hpp.
namespace sm90 {
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm90
}  // namespace kernels::attention_backward

template <>
struct table_entry<attention_backward_config> {
  static constexpr row_properties sums_in_no_order{determinism::none, batch_invariance::none};

  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (Kernel::config.target == backend::cuda_sm90) {
      namespace target = kernels::attention_backward::sm90;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "attention_backward", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      row.properties = sums_in_no_order;
      return row;
    } else if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::attention_backward::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "attention_backward", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      if constexpr (Kernel::config.d_q_atomics) row.properties = sums_in_no_order;
      return row;
    } else {
      namespace target = kernels::attention_backward::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "attention_backward", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
