// Launches of linear attention in chunks with wgmma (compute capability 9.0, compiled for sm_90a):
// the kernels of the delta rule on Hopper without their correction (delta_rule/sm90/), forward and
// for the three scans of gradients; those of decays of channels as on sm80, from kept states.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/kernels/chunked_scan/sm80/decay_launch.hpp>
#include <tessera/kernels/chunked_scan/sm90/backward.hpp>
#include <tessera/kernels/chunked_scan/sm90/walk_args.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/launch.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

/// The launch of a row.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = chunked_scan_kernel_args;
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = resolved(Kernel::config).key_dim;
  static constexpr int shared_bytes = chunk_shared_bytes(Kernel::config);
  using decay_kernels = sm80::decay_kernels<element, keys>;
  static constexpr bool is_forward = Kernel::config.pass == chunked_scan_pass::forward;

  static launcher of(const args_type& call, int /*multiprocessors*/, std::byte* workspace) {
    return {call, workspace};
  }

  static auto entries() {
    if constexpr (is_forward) {
      using kernels = delta_rule::sm90::walks<element, keys, false>;
      static_assert(kernels::channel_bytes <= shared_bytes && kernels::head_bytes <= shared_bytes);
      return kernels::entries();
    } else {
      using kernels = back_walks<element, keys>;
      static_assert(kernels::head_bytes <= shared_bytes && kernels::channel_bytes <= shared_bytes &&
                    kernels::column_bytes <= shared_bytes);
      return cuda::joined(
          kernels::entries(),
          std::array{decay_kernels::template entry_of<false>(),
                     cuda::entry_of(&recurrence::sm80::add_head_shares<chunked_scan_rows>)});
    }
  }
  std::size_t bytes() const {
    return is_forward ? 0 : sm80::chunk_scratch(call, keys, nullptr).bytes;
  }
  cudaError_t launch(cudaStream_t stream) const {
    if constexpr (is_forward) {
      const walk_args walk = walk_of(call, sm80::forward_scan_of(call));
      return delta_rule::sm90::walks<element, keys, false>::launch(walk.args, walk.further, stream);
    } else {
      const sm80::chunk_scratch scratch(call, keys, workspace);
      const sm80::chunk_scan of_keys = sm80::key_scan_of(call, scratch.d_k, scratch.kept.of_d);
      cudaError_t code = back_walks<element, keys>::launch(
          call, scratch.kept, sm80::query_scan_of(call, scratch.kept.of_s), of_keys,
          sm80::value_scan_of(call, scratch.d_v), stream);
      if (code == cudaSuccess && scratch.of_decays) {
        code = decay_kernels::template launch<false>(
            {.call = call, .states = scratch.kept, .scale_of_d = of_keys.final_scale}, stream);
      }
      return code == cudaSuccess ? sm80::add_head_shares(call, scratch, stream) : code;
    }
  }

  const args_type& call;
  std::byte* workspace;
};

}  // namespace tessera::kernels::chunked_scan::sm90
