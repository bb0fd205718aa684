// How a row of sparse attention becomes an instance: for the generated table, and for rows
// of an application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::sparse_attention {
namespace cpu {
// Defined in kernels/sparse_attention/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const sparse_attention_kernel_args& args, int threads);
template <class Kernel>
status launch(const sparse_attention_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/sparse_attention/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const sparse_attention_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const sparse_attention_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::sparse_attention

template <>
struct table_entry<sparse_attention_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::sparse_attention::sm80;
      instance row = instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "sparse_attention", name, resolved_config<Kernel>, &target::prepare<Kernel>);
      // Of the dense kernels: how keys are split over blocks depends on how many there are.
      if constexpr (Kernel::config.pattern == sparse_pattern::blocksparse &&
                    Kernel::config.type != dtype::none) {
        row.properties.batch_invariant = batch_invariance::none;
      }
      return row;
    } else {
      namespace target = kernels::sparse_attention::cpu;
      return instance_of<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>(
          "sparse_attention", name, resolved_config<Kernel>);
    }
  }
};

}  // namespace tessera
