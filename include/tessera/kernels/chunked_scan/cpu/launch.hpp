// Launches of the kernels of linear attention with decay on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/backward.hpp>
#include <tessera/kernels/chunked_scan/cpu/forward.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Calls of few updates are over before a second thread has come.
inline int useful_threads(const chunked_scan_kernel_args& args, int threads) noexcept {
  constexpr double few = 1 << 16;
  const double updates = static_cast<double>(args.tokens) * static_cast<double>(args.heads) *
                         static_cast<double>(args.keys) * static_cast<double>(args.values);
  const double entries = args.cu_seqlens != nullptr ? 1.0 : static_cast<double>(args.sequences);
  return entries * updates < few ? 1 : threads;
}

/// A launch of a row's direction.
template <class Kernel>
struct launcher {
  using args_type = chunked_scan_kernel_args;
  static constexpr bool forward = traits<Kernel>::config.pass == chunked_scan_pass::forward;

  static launcher of(const args_type& call) { return {call}; }

  std::size_t workspace_bytes(int threads) const {
    if constexpr (forward) {
      // What is read does not change the memory.
      using any_kind = forward_launch<Kernel, chunked_scan_decay::none, state_read::after>;
      return any_kind(args, threads, nullptr).bytes_of_thread() * static_cast<std::size_t>(threads);
    } else {
      return backward_bytes<Kernel>(args, threads);
    }
  }
  void run(std::byte* memory, int threads) const {
    const int useful = useful_threads(args, threads);
    with_kinds_of(args, [&](auto decay, auto read) {
      if constexpr (forward) {
        forward_launch<Kernel, decay(), read()>(args, threads, memory).run(useful);
      } else {
        launch_backward<Kernel, decay(), read()>(args, memory, useful, threads);
      }
    });
  }

  const args_type& args;
};

}  // namespace tessera::kernels::chunked_scan::cpu
