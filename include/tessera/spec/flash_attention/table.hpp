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
}  // namespace flash

template <>
struct table_entry<flash_config> {
  template <class Row>
  static constexpr flash_instance instance_of() {
    flash_instance made;
    made.workspace_bytes = &flash::workspace_bytes<Row>;
    made.launch = &flash::launch<Row>;
    return made;
  }
};

}  // namespace tessera
