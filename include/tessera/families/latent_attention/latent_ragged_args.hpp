// The tensors and options of multi_latent_ragged_page_attention, under the names that tools and
// files use. N sequences; T tokens, those of a sequence one after the other.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q_nope, q_pe | [T,H,L], [T,H,R]: absorbed query and rope | f32, f16, bf16; that of q_nope |
// | ckv, k_pe | [T,L], [T,R]: of the new tokens, written to the cache | that of q_nope |
// | kv_cache | [P,U,C,Lp+Rp]: slot u of a page is row u % C of group u / C | that of q_nope |
// | block_tables | [N,M]: page m holds tokens [m U C, m U C + U C) of the sequence | i32 |
// | kv_lens | [N]: tokens of the sequence, the new ones included; 0 to M U C | i32 |
// | cu_seqlens_q | [N+1]: new tokens of the sequences; starts at 0, never decreases | i32 |
// | distribution | [3]: the last number is that of the sequences in use. Absent: N | i32 |
// | out | [T,H,L] | that of q_nope |
// | lse | [H,T] | f32, natural logarithm |
//
// C is 4 / (bytes of an element); Lp and Rp are L and R rounded up to 128, a latent lies in the
// first L columns of its row and its rope part in those from Lp on. The last axis of all but lse
// has stride 1, other strides are free. Tokens behind the last sequence in use have out 0 and lse
// -inf. Nobody looks at entries of lists behind it, at pages behind ceil(kv_lens / (U C)), at what
// pages hold behind kv_lens, or at columns of padding; they stay as they are.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; distribution and lse are optional.
struct latent_ragged_args {
  tensor_view q_nope{};
  tensor_view q_pe{};
  tensor_view ckv{};
  tensor_view k_pe{};
  tensor_view kv_cache{};  ///< input and output
  tensor_view block_tables{};
  tensor_view kv_lens{};
  tensor_view cu_seqlens_q{};
  tensor_view distribution{};

  tensor_view out{};
  tensor_view lse{};  ///< log sum exp of the row, before v_scale
};

struct latent_ragged_options {
  /// Multiplies the sum of both products before everything else. Required: that of the model, whose
  /// heads have other widths than latents. Must be finite.
  std::optional<double> softmax_scale{};
  /// Tokens before its own that a row sees. Unset: all. The last W tokens: W - 1.
  std::optional<std::int64_t> window_left{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  /// Scores are multiplied by q_scale and k_scale before the cap, out by v_scale; writes apply
  /// none. Must be positive.
  std::optional<double> q_scale{};
  std::optional<double> k_scale{};
  std::optional<double> v_scale{};

  friend bool operator==(const latent_ragged_options&, const latent_ragged_options&) = default;
};

}  // namespace tessera
