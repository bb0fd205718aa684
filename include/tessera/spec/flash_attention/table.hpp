// How a flash attention forward row becomes an instance; see spec/table.hpp.
#pragma once

#include <cstddef>

#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/registry.hpp>
#include <tessera/spec/flash_attention/rules.hpp>
#include <tessera/spec/table.hpp>

namespace tessera {

namespace flash {
// Defined in kernels/flash_attention/launch.hpp, instantiated by the units.
template <class Row>
std::size_t workspace_bytes(const flash_kernel_args& args, int threads);
template <class Row>
status launch(const flash_kernel_args& args, const launch_context& context);

// Likewise of kernels/flash_attention/sm80.hpp.
namespace sm80 {
template <class Row>
std::size_t workspace_bytes(const flash_kernel_args& args, int multiprocessors);
template <class Row>
status launch(const flash_kernel_args& args, const launch_context& context);
template <class Row>
status prepare();
template <class Row>
status write_dropout_mask(const tensor_view& mask, const flash_kernel_args& args, void* stream);
}  // namespace sm80
}  // namespace flash

template <>
struct table_entry<flash_config> {
  template <class Row>
  static constexpr flash_instance instance_of() {
    flash_instance made;
    if constexpr (is_cuda(Row::config.target)) {
      made.workspace_bytes = &flash::sm80::workspace_bytes<Row>;
      made.launch = &flash::sm80::launch<Row>;
      made.prepare = &flash::sm80::prepare<Row>;
      if constexpr (Row::config.features.has(flash_feature::dropout)) {
        made.write_dropout_mask = &flash::sm80::write_dropout_mask<Row>;
      }
      // How keys are split over blocks depends on how many there are.
      made.properties.batch_invariant = batch_invariance::none;
    } else {
      made.workspace_bytes = &flash::workspace_bytes<Row>;
      made.launch = &flash::launch<Row>;
    }
    return made;
  }
};

}  // namespace tessera
