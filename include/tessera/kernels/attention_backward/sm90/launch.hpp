// Entry points of the gradients of attention for Hopper (sm_90a): those for all GPUs with a kernel
// of its own.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr for sm_90a alone.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/kernels/attention_backward/sm80/launch.hpp>
#include <tessera/kernels/attention_backward/sm90/gradients.hpp>
#include <tessera/kernels/attention_backward/sm90/wide_gradients.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward {

namespace sm80 {

template <class Kernel>
requires(Kernel::config.target == backend::cuda_sm90) struct one_pass<Kernel> {
  static constexpr attention_backward_config config = resolved(Kernel::config);
  static constexpr bool wide = config.head_dim > 128;
  using tiles =
      std::conditional_t<wide,
                         sm90::wide_tiles<config.head_dim, config.v_head_dim, config.in_turns>,
                         sm90::hopper_tiles<config.head_dim, config.in_turns>>;

  static constexpr bool has_dropped = true;
  /// Plain scores, and those with dropout alone, may have segments: ids lie beside what is known of
  /// queries.
  static score_kind kind_of(const attention_kernel_args& args) {
    attention_kernel_args without = args;
    without.dropout = false;
    const score_kind kind = sm80::kind_of(without);
    const bool plain = kind != score_kind::all && args.soft_cap <= 0.0f;
    if (args.dropout) return plain ? score_kind::dropped : score_kind::all;
    return plain ? score_kind::plain : kind;
  }
  template <score_kind Kind, class Hooks>
  static constexpr auto kernel() {
    static_assert(!hooked_args<Hooks>::has_functors, "rows of cuda_sm90 take no functors");
    using element = element_t<config.type>;
    if constexpr (wide) {
      return &sm90::wide_gradients<element, config.head_dim, config.v_head_dim, Kind,
                                   config.in_turns>;
    } else {
      return &sm90::hopper_gradients<element, config.head_dim, Kind, config.in_turns>;
    }
  }
};

}  // namespace sm80

namespace sm90 {

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int multiprocessors) {
  return sm80::workspace_bytes<Kernel>(args, multiprocessors);
}

template <class Kernel>
status prepare() {
  return sm80::prepare<Kernel>();
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context) {
  return sm80::launch<Kernel>(args, context);
}

}  // namespace sm90
}  // namespace tessera::kernels::attention_backward
