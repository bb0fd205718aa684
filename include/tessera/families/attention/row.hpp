// How an attention row becomes an instance: for the generated table, and for rows of an
// application.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

namespace kernels::attention {
namespace cpu {
// Defined in kernels/attention/cpu/launch.hpp, instantiated by the units.
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int threads);
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/attention/sm90/{launch_rows,call_plan}.hpp.
namespace sm90 {
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
template <class Kernel>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args, void* stream);
}  // namespace sm90

// Likewise of kernels/attention/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
template <class Kernel>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args, void* stream);
}  // namespace sm80
}  // namespace kernels::attention

template <>
struct table_entry<attention_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    if constexpr (Kernel::config.target == backend::cuda_sm90) {
      namespace target = kernels::attention::sm90;
      instance row =
          instance_of<kernels::entry_functions<&target::workspace_bytes<Kernel>,
                                               &target::launch<Kernel>, &target::prepare<Kernel>>>(
              "attention", name, resolved_config<Kernel>);
      if constexpr (Kernel::config.features.has(attention_feature::dropout)) {
        row.finish = &finish<&target::write_dropout_mask<Kernel>>;
      }
      row.keep_batch_invariant = &split_by_length;
      return row;
    } else if constexpr (is_cuda(Kernel::config.target)) {
      namespace target = kernels::attention::sm80;
      instance row =
          instance_of<kernels::entry_functions<&target::workspace_bytes<Kernel>,
                                               &target::launch<Kernel>, &target::prepare<Kernel>>>(
              "attention", name, resolved_config<Kernel>);
      if constexpr (Kernel::config.features.has(attention_feature::dropout)) {
        row.finish = &finish<&target::write_dropout_mask<Kernel>>;
      }
      if (are_paged(Kernel::config.keys)) row.keep_batch_invariant = &split_by_length;
      return row;
    } else {
      namespace target = kernels::attention::cpu;
      instance row = instance_of<
          kernels::entry_functions<&target::workspace_bytes<Kernel>, &target::launch<Kernel>>>(
          "attention", name, resolved_config<Kernel>);
      row.finish = &finish<&write_dropout_mask_on_host>;
      // Pages that sequences share are then read by each.
      if (are_paged(Kernel::config.keys)) row.keep_batch_invariant = &split_by_length;
      return row;
    }
  }

  static void split_by_length(void* kernel_args) {
    static_cast<attention_kernel_args*>(kernel_args)->batch_invariant = true;
  }

 private:
  static status write_dropout_mask_on_host(const tensor_view& mask,
                                           const attention_kernel_args& args, void*) {
    prim::write_dropout_mask(mask, args.dropout_seed, args.dropout_threshold);
    return {};
  }
  /// The mask, which no kernel writes.
  template <auto WriteMask>
  static status finish(const void* tensors, const void* lowered, const launch_context& where) {
    return WriteMask(static_cast<const flash_attention_args*>(tensors)->dropout_mask,
                     *static_cast<const attention_kernel_args*>(lowered), where.stream);
  }
};

}  // namespace tessera
