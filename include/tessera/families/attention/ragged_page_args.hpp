// The tensors and options of attention over a batch of sequences whose keys and values lie in pages
// of one pool, under the names that tools and files use. N sequences; q has Tq tokens, those of a
// sequence one after the other.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [Tq,Hq,D] | f32, f16, bf16 |
// | kv_pages | PTCD: [P,T,2 Hkv,D]; PTCLD: [P,T,C,L,Dp] | that of q; f8_e4m3, f8_e5m2, i8 |
// | k_new, v_new | written to the pool (ragged_page_attention_v3): [Tq,Hkv,D] | that of q or pool |
// | k_scales, v_scales | [Hkv]: what a pool of 8 bits was divided by, head by head | f32 |
// | k_token_scales, v_token_scales | [P,T,Hkv]: the same, slot by slot | f32 |
// | out | [Tq,Hq,D] | that of q |
// | block_table, seqlens_k, cu_seqlens_q, num_seqs, sinks, lse | as in unified_args.hpp | |
// | cu_prefix_seqs, prefix_pages | [F+1], [F]: likewise | i32 |
//
// Channel 2h of a token is K of head h, channel 2h + 1 its V. PTCLD keeps channel c in lane c % L
// of group c / L: L = 4 / (bytes of an element) lanes, C = ceil(2 Hkv / L) groups, and columns
// Dp = D rounded up to 128. What no channel has becomes 0 where a slot is written. With four lanes
// and more than two heads, groups lie four lanes apart.
//
// Strides, rows behind the last sequence, pages that sequences share and what is never looked at:
// as in unified_args.hpp.
//
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/families/attention/page_args.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct ragged_page_args {
  tensor_view q{};
  tensor_view kv_pages{};  ///< ragged_page_attention_v3: input and output
  tensor_view block_table{};
  tensor_view seqlens_k{};
  tensor_view cu_seqlens_q{};
  tensor_view num_seqs{};  ///< optional
  tensor_view k_new{};     ///< ragged_page_attention_v3
  tensor_view v_new{};
  tensor_view sinks{};     ///< optional
  tensor_view k_scales{};  ///< optional, pools of 8 bits: beside the option k_scale
  tensor_view v_scales{};

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row, before v_scale

  tensor_view cu_prefix_seqs{};  ///< optional, both: groups of sequences with the same first pages
  tensor_view prefix_pages{};
  /// Optional, pools of 8 bits: beside k_scale and k_scales. ragged_page_attention_v3: input and
  /// output.
  tensor_view k_token_scales{};
  tensor_view v_token_scales{};
};

struct ragged_page_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Keys before its own that a row sees. Unset: all. The last W tokens: W - 1.
  std::optional<std::int64_t> window_left{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  page_layout pool_layout = page_layout::PTCD;
  /// ragged_page_attention_v3: scores are those of q / q_scale, rounded to the pool's type, times
  /// q_scale. Must be positive.
  std::optional<double> q_scale{};
  /// Scores are multiplied by k_scale, out by v_scale: what keys and values of the pool were
  /// divided by. Writes apply none. Must be positive.
  std::optional<double> k_scale{};
  std::optional<double> v_scale{};

  friend bool operator==(const ragged_page_options&, const ragged_page_options&) = default;
};

/// The second writes k_new and v_new to the pool before it attends.
enum class ragged_page_op : std::uint8_t { ragged_page_attention_v2, ragged_page_attention_v3 };

/// A call of one of them without its memory.
using ragged_page_problem = basic_problem<ragged_page_op, ragged_page_args, ragged_page_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline ragged_page_problem problem_of(
    const ragged_page_args& args, const ragged_page_options& options = {},
    ragged_page_op op = ragged_page_op::ragged_page_attention_v2) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.kv_pages),
          .options = options};
}

}  // namespace tessera
