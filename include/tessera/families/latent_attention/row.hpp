// How a row of latent attention becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::latent_attention {
namespace cpu {
// Defined in kernels/latent_attention/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const latent_attention_kernel_args& args, int threads);
template <class Kernel>
status launch(const latent_attention_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/latent_attention/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const latent_attention_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const latent_attention_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80

// Likewise of kernels/latent_attention/sm90/launch.hpp.
namespace sm90 {
template <class Kernel>
std::size_t workspace_bytes(const latent_attention_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const latent_attention_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm90
}  // namespace kernels::latent_attention

template <>
struct table_entry<latent_attention_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (Kernel::config.target == backend::cuda_sm90) {
      namespace target = kernels::latent_attention::sm90;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "latent_attention", name, resolved_config<Kernel>, &target::prepare<Kernel>);
    } else if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::latent_attention::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "latent_attention", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      // Into how many splits keys are cut depends on how many sequences there are, also of the
      // dense kernels.
      if constexpr (Kernel::config.form == latent_form::absorbed ||
                    Kernel::config.type != dtype::none) {
        row.properties.batch_invariant = batch_invariance::none;
      }
      return row;
    } else {
      namespace target = kernels::latent_attention::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "latent_attention", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
