// Launches of the delta rule kernels for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <array>
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
#include <tessera/kernels/delta_rule/sm80/chunk_back_launch.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_launch.hpp>
#include <tessera/kernels/delta_rule/sm80/forward.hpp>
#include <tessera/kernels/delta_rule/sm80/lone_token.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/row_launch.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// A row that goes token by token.
template <class Kernel>
struct token_row {
  using args_type = delta_rule_kernel_args;
  using scratch = backward_scratch;
  using element = element_t<Kernel::config.type>;
  using shape = recurrence::sm80::tile_shape_of<resolved(Kernel::config).key_dim>;
  static constexpr bool by_chunks = false;
  static constexpr bool is_forward = Kernel::config.pass == delta_rule_pass::forward;
  static constexpr int leaf = tokens_at_a_time<shape>;
  static constexpr int shared_bytes =
      is_forward ? 0 : static_cast<int>(sizeof(backward_tokens<shape>));

  template <bool LowRank>
  static auto of_rank() {
    if constexpr (is_forward) {
      return &step_through<element, shape, LowRank>;
    } else {
      return &step_back_through<element, shape, LowRank>;
    }
  }
  static auto of_tokens(const args_type& args) {
    return args.update == delta_rule_update::delta ? of_rank<false>() : of_rank<true>();
  }
  static constexpr bool has_lone = is_forward && shape::keys == recurrence::sm80::row_shape::keys;
  static auto of_lone_tokens(const args_type& args) requires has_lone {
    const auto delta = &lone_through<element, false>;
    if (!takes_lone_tokens(args)) return decltype(delta){};
    return args.update == delta_rule_update::delta ? delta : &lone_through<element, true>;
  }
  static auto entries() {
    const auto delta = cuda::entry_of(of_rank<false>(), shared_bytes);
    const auto low_rank = cuda::entry_of(of_rank<true>(), shared_bytes);
    if constexpr (has_lone) {
      return std::array{delta, low_rank, cuda::entry_of(&lone_through<element, false>),
                        cuda::entry_of(&lone_through<element, true>)};
    } else if constexpr (is_forward) {
      return std::array{delta, low_rank};
    } else {
      return std::array{delta, low_rank,
                        cuda::entry_of(&recurrence::sm80::add_head_shares<delta_rule_output>),
                        cuda::entry_of(&add_gate_sums<element>)};
    }
  }

  static recurrence::sm80::launch_states states_of(const args_type& args) {
    return {args.value_heads, args.key_heads, args.value_dim};
  }
  static auto gradients_of(const backward_args& args) {
    using gradient = recurrence::sm80::head_gradient<delta_rule_output>;
    return std::array{gradient{args.d_query, args.call.key_dim, args.call.d_q},
                      gradient{args.d_key, args.call.key_dim, args.call.d_k}};
  }
  static cudaError_t launch_sums(const backward_args& args, cudaStream_t stream) {
    if (!args.call.gate.raw) return cudaSuccess;
    return prim::cuda::launch_kernel(&add_gate_sums<element>, cuda::grid_of(args.call.value_heads),
                                     1024, 0, stream, false, args);
  }
};

/// A forward row of chunks.
template <class Kernel>
struct chunk_row : chunk_kernels<Kernel> {
  using args_type = delta_rule_kernel_args;
  static constexpr bool by_chunks = true;

  static std::size_t workspace_bytes(const args_type&) { return 0; }
  static cudaError_t launch(const args_type& args, int multiprocessors, std::byte*,
                            cudaStream_t stream) {
    return launch_chunks<Kernel>(args, multiprocessors, stream);
  }
};

/// Gradients by chunks.
template <class Kernel>
struct chunk_back_row : chunk_back_kernels<Kernel> {
  using args_type = delta_rule_kernel_args;
  static constexpr bool by_chunks = true;

  static std::size_t workspace_bytes(const args_type& args) {
    return chunk_back_scratch(args, chunk_back_kernels<Kernel>::keys, nullptr).bytes;
  }
  static cudaError_t launch(const args_type& args, int, std::byte* workspace, cudaStream_t stream) {
    return launch_chunks_back<Kernel>(args, workspace, stream);
  }
};

template <class Kernel>
struct row_of_config {
  static constexpr bool is_forward = Kernel::config.pass == delta_rule_pass::forward;
  using by_chunks = std::conditional_t<is_forward, chunk_row<Kernel>, chunk_back_row<Kernel>>;
  using type = std::conditional_t<goes_by_chunks(Kernel::config), by_chunks, token_row<Kernel>>;
};

template <class Kernel>
struct launcher : recurrence::sm80::row_launcher<typename row_of_config<Kernel>::type> {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
};

}  // namespace tessera::kernels::delta_rule::sm80
