// Entry points of linear attention with decay for GPUs (sm_80 and everything later): workspace,
// preparation and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/kernels/chunked_scan/sm80/backward.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_launch.hpp>
#include <tessera/kernels/chunked_scan/sm80/forward.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

template <class Kernel>
inline constexpr bool is_forward = Kernel::config.pass == chunked_scan_pass::forward;

inline scan_kind kind_of(const chunked_scan_kernel_args& args) {
  if (args.u.data != nullptr) return scan_kind::bonus;
  return args.gv.data != nullptr ? scan_kind::value_decays : scan_kind::plain;
}

/// All kernels of a row that goes token by token.
template <class Kernel>
struct step_kernels {
  using element = element_t<Kernel::config.type>;
  using shape = recurrence::sm80::tile_shape_of<resolved(Kernel::config).key_dim>;
  static constexpr int shared_bytes =
      is_forward<Kernel> ? 0 : static_cast<int>(sizeof(backward_tokens<shape>));

  template <scan_kind Kind>
  static auto of_kind() {
    if constexpr (is_forward<Kernel>) {
      return &step_through<element, shape, Kind>;
    } else {
      return &step_back_through<element, shape, Kind>;
    }
  }
  /// The one that goes through tokens.
  static auto of_tokens(scan_kind kind) {
    if (kind == scan_kind::bonus) return of_kind<scan_kind::bonus>();
    return kind == scan_kind::plain ? of_kind<scan_kind::plain>()
                                    : of_kind<scan_kind::value_decays>();
  }
  static auto entries() {
    const std::array of_steps{cuda::entry_of(of_tokens(scan_kind::plain), shared_bytes),
                              cuda::entry_of(of_tokens(scan_kind::value_decays), shared_bytes),
                              cuda::entry_of(of_tokens(scan_kind::bonus), shared_bytes)};
    if constexpr (is_forward<Kernel>) {
      return of_steps;
    } else {
      return std::array{of_steps[0], of_steps[1], of_steps[2],
                        cuda::entry_of(&recurrence::sm80::add_head_shares<chunked_scan_rows>),
                        cuda::entry_of(&add_bonus_sums<element>)};
    }
  }
};

template <class Kernel>
struct row_kernels : std::conditional_t<goes_by_chunks(Kernel::config), chunk_kernels<Kernel>,
                                        step_kernels<Kernel>> {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
};

template <class Kernel>
backward_scratch scratch_of(const chunked_scan_kernel_args& args, int multiprocessors,
                            std::byte* base) {
  using shape = typename row_kernels<Kernel>::shape;
  return {args,
          recurrence::sm80::cut_of<shape>(args.tokens, args.values, tokens_at_a_time<shape>,
                                          sequences_with_rest(args) * args.heads, multiprocessors),
          base};
}

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const chunked_scan_kernel_args& args, int multiprocessors) {
  if constexpr (is_forward<Kernel>) {
    return 0;
  } else {
    return scratch_of<Kernel>(args, multiprocessors, nullptr).bytes;
  }
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<row_kernels<Kernel>>();
}

template <class Kernel>
cudaError_t launch_forward(const chunked_scan_kernel_args& args, cudaStream_t stream) {
  using shape = typename row_kernels<Kernel>::shape;
  const std::int64_t tiles = (args.values + shape::columns - 1) / shape::columns;
  const std::int64_t blocks = sequences_with_rest(args) * args.heads * tiles;
  if (blocks <= 0) return cudaSuccess;
  return prim::cuda::launch_kernel(row_kernels<Kernel>::of_tokens(kind_of(args)),
                                   cuda::grid_of(blocks), shape::threads, 0, stream, false, args,
                                   static_cast<int>(tiles));
}

template <class Kernel>
cudaError_t launch_backward(const backward_args& args, cudaStream_t stream) {
  using kernels_of = row_kernels<Kernel>;
  using shape = typename kernels_of::shape;
  const chunked_scan_kernel_args& call = args.call;
  cudaError_t code = cudaSuccess;
  if (sequences_with_rest(call) * call.heads > 0) {
    code = prim::cuda::launch_kernel(kernels_of::of_tokens(kind_of(call)),
                                     cuda::grid_of(args.cut.blocks), shape::threads,
                                     kernels_of::shared_bytes, stream, false, args);
  }
  if (args.d_k != nullptr) {
    auto shares = recurrence::sm80::head_shares::of(call, call.heads, call.kv_heads);
    shares.shares = args.d_k;
    shares.columns = call.keys;
    if (code == cudaSuccess) code = launch_head_shares(shares, call.d_k, stream);
    shares.shares = args.d_v;
    shares.columns = call.values;
    if (code == cudaSuccess) code = launch_head_shares(shares, call.d_v, stream);
  }
  if (code == cudaSuccess && args.d_u != nullptr && call.d_u.data != nullptr) {
    constexpr int threads = 256;
    code =
        prim::cuda::launch_kernel(&add_bonus_sums<typename kernels_of::element>,
                                  cuda::grid_of((call.heads * call.keys + threads - 1) / threads),
                                  threads, 0, stream, false, args);
  }
  return code;
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. `context.threads` is the number of its multiprocessors: it decides the workspace. Can be
/// captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const chunked_scan_kernel_args& args, const launch_context& context) {
  using kernels_of = row_kernels<Kernel>;
  const std::size_t bytes = workspace_bytes<Kernel>(args, context.threads);
  if (status done = cuda::ready<kernels_of>(context, bytes); !done) return done;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (goes_by_chunks(Kernel::config)) {
    return cuda::launched(launch_chunks<Kernel>(args, context.threads, stream));
  } else if constexpr (is_forward<Kernel>) {
    return cuda::launched(launch_forward<Kernel>(args, stream));
  } else {
    const backward_args back = scratch_of<Kernel>(args, context.threads, context.workspace).args;
    return cuda::launched(launch_backward<Kernel>(back, stream));
  }
}

}  // namespace tessera::kernels::chunked_scan::sm80
