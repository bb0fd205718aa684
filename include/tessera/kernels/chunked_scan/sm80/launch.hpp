// Launches of linear attention with decay for GPUs (sm_80 and everything later).
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
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

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

/// The launch of a row: in chunks, or token by token in one of two directions.
template <class Kernel>
struct launcher {
  using args_type = chunked_scan_kernel_args;

  static launcher of(const args_type& call, int multiprocessors, std::byte* workspace) {
    return {call, multiprocessors, workspace};
  }

  static auto entries() { return row_kernels<Kernel>::entries(); }
  std::size_t bytes() const {
    if constexpr (is_forward<Kernel>) {
      return 0;
    } else {
      return scratch_of<Kernel>(args, multiprocessors, nullptr).bytes;
    }
  }
  cudaError_t launch(cudaStream_t stream) const {
    if constexpr (goes_by_chunks(Kernel::config)) {
      return launch_chunks<Kernel>(args, multiprocessors, stream);
    } else if constexpr (is_forward<Kernel>) {
      return launch_forward<Kernel>(args, stream);
    } else {
      return launch_backward<Kernel>(scratch_of<Kernel>(args, multiprocessors, workspace).args,
                                     stream);
    }
  }

  const args_type& args;
  int multiprocessors;
  std::byte* workspace;
};

}  // namespace tessera::kernels::chunked_scan::sm80
