// How a mean pooling row becomes an instance; see spec/table.hpp.
#pragma once

#include <cstddef>

#include <tessera/families/mean_pooling/instance.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/spec/table.hpp>

namespace tessera {

namespace kernels::mean_pooling {
namespace cpu {
// Defined in kernels/mean_pooling/cpu/launch.hpp, instantiated by the units.
template <class Row>
std::size_t workspace_bytes(const mean_pooling_kernel_args& args, int threads);
template <class Row>
status launch(const mean_pooling_kernel_args& args, const launch_context& context);
}  // namespace cpu

// Likewise of kernels/mean_pooling/sm80/launch.hpp.
namespace sm80 {
template <class Kernel>
std::size_t workspace_bytes(const mean_pooling_kernel_args& args, int multiprocessors);
template <class Kernel>
status launch(const mean_pooling_kernel_args& args, const launch_context& context);
template <class Kernel>
status prepare();
}  // namespace sm80
}  // namespace kernels::mean_pooling

template <>
struct table_entry<mean_pooling_config> {
  template <class Row>
  static constexpr mean_pooling_instance instance_of() {
    mean_pooling_instance made;
    if constexpr (is_cuda(Row::config.target)) {
      made.workspace_bytes = &kernels::mean_pooling::sm80::workspace_bytes<Row>;
      made.launch = &kernels::mean_pooling::sm80::launch<Row>;
      made.prepare = &kernels::mean_pooling::sm80::prepare<Row>;
    } else {
      made.workspace_bytes = &kernels::mean_pooling::cpu::workspace_bytes<Row>;
      made.launch = &kernels::mean_pooling::cpu::launch<Row>;
    }
    return made;
  }
};

}  // namespace tessera
