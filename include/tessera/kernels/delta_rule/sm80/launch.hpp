// Launches of the delta rule kernels for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm80/backward.hpp>
#include <tessera/kernels/delta_rule/sm80/backward_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_launch.hpp>
#include <tessera/kernels/delta_rule/sm80/forward.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm80 {

template <class Kernel>
inline constexpr bool is_forward = Kernel::config.pass == delta_rule_pass::forward;

/// All kernels of a row that goes token by token.
template <class Kernel>
struct step_kernels {
  using element = element_t<Kernel::config.type>;
  using shape = recurrence::sm80::tile_shape_of<resolved(Kernel::config).key_dim>;
  static constexpr int shared_bytes =
      is_forward<Kernel> ? 0 : static_cast<int>(sizeof(backward_tokens<shape>));

  /// The one that goes through tokens.
  static auto of_tokens(delta_rule_update update) {
    const bool low_rank = update != delta_rule_update::delta;
    if constexpr (is_forward<Kernel>) {
      return low_rank ? &step_through<element, shape, true> : &step_through<element, shape, false>;
    } else {
      return low_rank ? &step_back_through<element, shape, true>
                      : &step_back_through<element, shape, false>;
    }
  }
  static auto entries() {
    const std::array of_steps{cuda::entry_of(of_tokens(delta_rule_update::delta), shared_bytes),
                              cuda::entry_of(of_tokens(delta_rule_update::low_rank), shared_bytes)};
    if constexpr (is_forward<Kernel>) {
      return of_steps;
    } else {
      return std::array{of_steps[0], of_steps[1],
                        cuda::entry_of(&recurrence::sm80::add_head_shares<delta_rule_output>),
                        cuda::entry_of(&add_gate_sums<element>)};
    }
  }
};

template <class Kernel>
struct row_kernels : std::conditional_t<goes_by_chunks(Kernel::config), chunk_kernels<Kernel>,
                                        step_kernels<Kernel>> {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
};

template <class Kernel>
backward_scratch scratch_of(const delta_rule_kernel_args& args, int multiprocessors,
                            std::byte* base) {
  using shape = typename row_kernels<Kernel>::shape;
  return {args,
          recurrence::sm80::cut_of<shape>(args.tokens, args.value_dim, tokens_at_a_time<shape>,
                                          sequences_with_rest(args) * args.value_heads,
                                          multiprocessors),
          base};
}

template <class Kernel>
cudaError_t launch_forward(const delta_rule_kernel_args& args, cudaStream_t stream) {
  using shape = typename row_kernels<Kernel>::shape;
  const std::int64_t tiles = (args.value_dim + shape::columns - 1) / shape::columns;
  const std::int64_t blocks = sequences_with_rest(args) * args.value_heads * tiles;
  if (blocks <= 0) return cudaSuccess;
  return prim::cuda::launch_kernel(row_kernels<Kernel>::of_tokens(args.update),
                                   cuda::grid_of(blocks), shape::threads, 0, stream, false, args,
                                   static_cast<int>(tiles));
}

template <class Kernel>
cudaError_t launch_backward(const backward_args& args, cudaStream_t stream) {
  using kernels_of = row_kernels<Kernel>;
  using shape = typename kernels_of::shape;
  const delta_rule_kernel_args& call = args.call;
  cudaError_t code = cudaSuccess;
  if (sequences_with_rest(call) * call.value_heads > 0) {
    code = prim::cuda::launch_kernel(kernels_of::of_tokens(call.update),
                                     cuda::grid_of(args.cut.blocks), shape::threads,
                                     kernels_of::shared_bytes, stream, false, args);
  }
  if (args.d_query != nullptr) {
    auto shares = recurrence::sm80::head_shares::of(call, call.value_heads, call.key_heads);
    shares.shares = args.d_query;
    shares.columns = call.key_dim;
    if (code == cudaSuccess) code = launch_head_shares(shares, call.d_q, stream);
    shares.shares = args.d_key;
    if (code == cudaSuccess) code = launch_head_shares(shares, call.d_k, stream);
  }
  if (code == cudaSuccess && args.gate_sums != nullptr) {
    code = prim::cuda::launch_kernel(&add_gate_sums<typename kernels_of::element>,
                                     cuda::grid_of(call.value_heads), 1024, 0, stream, false, args);
  }
  return code;
}

/// The launch of a row: in chunks, or token by token in one of two directions.
template <class Kernel>
struct launcher {
  using args_type = delta_rule_kernel_args;

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

}  // namespace tessera::kernels::delta_rule::sm80
