// Entry points of the kernels of linear attention with decay on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/backward.hpp>
#include <tessera/kernels/chunked_scan/cpu/forward.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const chunked_scan_kernel_args& args, int threads) {
  if constexpr (traits<Kernel>::config.pass == chunked_scan_pass::forward) {
    const std::int64_t floats = rounded_up(
        forward_scratch<Kernel>::floats(args, blocks_together<Kernel>(args, threads)), 16);
    return static_cast<std::size_t>(floats) * sizeof(float) * static_cast<std::size_t>(threads);
  } else {
    return backward_extents<Kernel>(args).bytes(args, threads);
  }
}

/// Calls of few updates are over before a second thread has come.
inline int useful_threads(const chunked_scan_kernel_args& args, int threads) noexcept {
  constexpr double few = 1 << 16;
  const double updates = static_cast<double>(args.tokens) * static_cast<double>(args.heads) *
                         static_cast<double>(args.keys) * static_cast<double>(args.values);
  const double entries = args.cu_seqlens != nullptr ? 1.0 : static_cast<double>(args.sequences);
  return entries * updates < few ? 1 : threads;
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const chunked_scan_kernel_args& args, const launch_context& context) {
  const std::size_t needed = workspace_bytes<Kernel>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  auto* const memory = reinterpret_cast<float*>(context.workspace);
  const int threads = useful_threads(args, context.threads);
  with_kinds_of(args, [&](auto decay, auto read) {
    if constexpr (traits<Kernel>::config.pass == chunked_scan_pass::forward) {
      const std::int64_t together = blocks_together<Kernel>(args, context.threads);
      forward_launch<Kernel, decay(), read()>(args, together, memory).run(threads);
    } else {
      launch_backward<Kernel, decay(), read()>(args, memory, threads, context.threads);
    }
  });
  return {};
}

}  // namespace tessera::kernels::chunked_scan::cpu
