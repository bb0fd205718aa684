// Launches of linear attention with decay for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

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
#include <tessera/kernels/chunked_scan/sm80/lone_token.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/row_launch.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

inline scan_kind kind_of(const chunked_scan_kernel_args& args) {
  if (args.u.data != nullptr) return scan_kind::bonus;
  return args.gv.data != nullptr ? scan_kind::value_decays : scan_kind::plain;
}

/// A row that goes token by token.
template <class Kernel>
struct token_row {
  using args_type = chunked_scan_kernel_args;
  using scratch = backward_scratch;
  using element = element_t<Kernel::config.type>;
  using shape = recurrence::sm80::tile_shape_of<resolved(Kernel::config).key_dim>;
  static constexpr bool by_chunks = false;
  static constexpr bool is_forward = Kernel::config.pass == chunked_scan_pass::forward;
  static constexpr int leaf = tokens_at_a_time<shape>;
  static constexpr int shared_bytes =
      is_forward ? 0 : static_cast<int>(sizeof(backward_tokens<shape>));

  template <scan_kind Kind>
  static auto of_kind() {
    if constexpr (is_forward) {
      return &step_through<element, shape, Kind>;
    } else {
      return &step_back_through<element, shape, Kind>;
    }
  }
  static auto of_tokens(const args_type& args) {
    const scan_kind kind = kind_of(args);
    if (kind == scan_kind::bonus) return of_kind<scan_kind::bonus>();
    return kind == scan_kind::plain ? of_kind<scan_kind::plain>()
                                    : of_kind<scan_kind::value_decays>();
  }
  static constexpr bool has_lone = is_forward && shape::keys == recurrence::sm80::row_shape::keys;
  static auto of_lone_tokens(const args_type& args) requires has_lone {
    const auto plain = &lone_through<element, false>;
    if (!takes_lone_tokens(args)) return decltype(plain){};
    return args.u.data != nullptr ? &lone_through<element, true> : plain;
  }
  static auto entries() {
    const auto plain = cuda::entry_of(of_kind<scan_kind::plain>(), shared_bytes);
    const auto value_decays = cuda::entry_of(of_kind<scan_kind::value_decays>(), shared_bytes);
    const auto bonus = cuda::entry_of(of_kind<scan_kind::bonus>(), shared_bytes);
    if constexpr (has_lone) {
      return std::array{plain, value_decays, bonus, cuda::entry_of(&lone_through<element, false>),
                        cuda::entry_of(&lone_through<element, true>)};
    } else if constexpr (is_forward) {
      return std::array{plain, value_decays, bonus};
    } else {
      return std::array{plain, value_decays, bonus,
                        cuda::entry_of(&recurrence::sm80::add_head_shares<chunked_scan_rows>),
                        cuda::entry_of(&add_bonus_sums<element>)};
    }
  }

  static recurrence::sm80::launch_states states_of(const args_type& args) {
    return {args.heads, args.kv_heads, args.values};
  }
  static auto gradients_of(const backward_args& args) {
    using gradient = recurrence::sm80::head_gradient<chunked_scan_rows>;
    return std::array{gradient{args.d_k, args.call.keys, args.call.d_k},
                      gradient{args.d_v, args.call.values, args.call.d_v}};
  }
  static cudaError_t launch_sums(const backward_args& args, cudaStream_t stream) {
    if (args.call.d_u.data == nullptr) return cudaSuccess;
    constexpr int threads = 256;
    const std::int64_t blocks = (args.call.heads * args.call.keys + threads - 1) / threads;
    return prim::cuda::launch_kernel(&add_bonus_sums<element>, cuda::grid_of(blocks), threads, 0,
                                     stream, false, args);
  }
};

/// A row of chunks.
template <class Kernel>
struct chunk_row : chunk_kernels<Kernel> {
  using args_type = chunked_scan_kernel_args;
  static constexpr bool by_chunks = true;

  static std::size_t workspace_bytes(const args_type& args) {
    using kernels = chunk_kernels<Kernel>;
    return kernels::is_backward ? chunk_scratch(args, kernels::keys, nullptr).bytes : 0;
  }
  static cudaError_t launch(const args_type& args, int multiprocessors, std::byte* workspace,
                            cudaStream_t stream) {
    if constexpr (chunk_kernels<Kernel>::is_backward) {
      return launch_chunks_back<Kernel>(args, workspace, multiprocessors, stream);
    } else {
      return launch_chunks<Kernel>(args, multiprocessors, stream);
    }
  }
};

template <class Kernel>
struct launcher
    : recurrence::sm80::row_launcher<std::conditional_t<goes_by_chunks(Kernel::config),
                                                        chunk_row<Kernel>, token_row<Kernel>>> {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
};

}  // namespace tessera::kernels::chunked_scan::sm80
