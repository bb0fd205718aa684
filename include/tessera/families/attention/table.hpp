// How a flash attention forward row becomes an instance; see spec/table.hpp.
#pragma once

#include <cstddef>

#include <tessera/families/attention/instance.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/spec/table.hpp>

namespace tessera {

namespace kernels::attention {
namespace cpu {
// Defined in kernels/attention/cpu/launch.hpp, instantiated by the units.
template <class Row>
std::size_t workspace_bytes(const attention_kernel_args& args, int threads);
template <class Row>
status launch(const attention_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/attention/sm80/launch.hpp.
namespace sm80 {
template <class Row>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors);
template <class Row>
status launch(const attention_kernel_args& args, const launch_context& context);
template <class Row>
status prepare();
template <class Row>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args, void* stream);
}  // namespace sm80
}  // namespace kernels::attention

template <>
struct table_entry<attention_config> {
  template <class Row>
  static constexpr attention_instance instance_of() {
    attention_instance made;
    if constexpr (is_cuda(Row::config.target)) {
      made.workspace_bytes = &kernels::attention::sm80::workspace_bytes<Row>;
      made.launch = &kernels::attention::sm80::launch<Row>;
      made.prepare = &kernels::attention::sm80::prepare<Row>;
      if constexpr (Row::config.features.has(attention_feature::dropout)) {
        made.write_dropout_mask = &kernels::attention::sm80::write_dropout_mask<Row>;
      }
      // How keys are split over blocks depends on how many there are.
      made.properties.batch_invariant = batch_invariance::none;
    } else {
      made.workspace_bytes = &kernels::attention::cpu::workspace_bytes<Row>;
      made.launch = &kernels::attention::cpu::launch<Row>;
    }
    return made;
  }
};

}  // namespace tessera
