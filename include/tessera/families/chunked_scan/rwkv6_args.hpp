// The tensors, options and operations of RWKV-6, under the names that tools and files use.
//
// | tensor | dense; packed | dtype |
// |---|---|---|
// | r, k, v | [B,T,H,K], [B,T,H,K], [B,T,H,V]; B is 1 | f32, f16, bf16 |
// | w | [B,T,H,K]; [1,T,H,K]: log decays, at most 0; with raw_w any numbers | f32, or that of r |
// | u | [H,K]: the bonus of the current token | f32, or that of r |
// | initial_state, final_state | [B,H,K,V]; [N,H,K,V] | f32 |
// | cu_seqlens | none; [N+1] | i32 |
// | state_indices | none; [N] | i32 |
// | out | [B,T,H,V]; [1,T,H,V] | that of r |
//
// Gradients have the shape and the dtype of what they belong to, d_out and d_final_state those of
// out and final_state.
//
// The last axis of every tensor has stride 1; every other stride is free. final_state may be
// initial_state itself.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/spec/problem_of.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct rwkv6_args {
  tensor_view r{};
  tensor_view k{};
  tensor_view v{};
  tensor_view w{};
  tensor_view u{};
  tensor_view initial_state{};  ///< absent: zeros
  tensor_view cu_seqlens{};     ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view final_state{};  ///< optional output: the state behind the last token
  tensor_view d_out{};
  tensor_view d_final_state{};  ///< absent: zeros
  tensor_view d_r{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_w{};  ///< this and the following are optional outputs
  tensor_view d_u{};
  tensor_view d_initial_state{};

  /// With cu_seqlens: the states are pools [P,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

struct rwkv6_options {
  /// Multiplies r. Must be finite.
  double scale = 1.0;
  /// Tokens go from the last of a sequence to its first.
  bool reverse = false;
  /// The log decay is -exp(w).
  bool raw_w = false;

  friend bool operator==(const rwkv6_options&, const rwkv6_options&) = default;
};

/// Operations of RWKV-6.
enum class rwkv6_op : std::uint8_t { rwkv6, rwkv6_backward };

/// A call of one of them without its memory.
using rwkv6_problem = basic_problem<rwkv6_op, rwkv6_args, rwkv6_options>;

constexpr chunked_scan_pass pass_of(rwkv6_op op) noexcept {
  return op == rwkv6_op::rwkv6_backward ? chunked_scan_pass::backward : chunked_scan_pass::forward;
}

/// See spec/problem_of.hpp.
rwkv6_problem problem_type(const rwkv6_args&);

}  // namespace tessera
