// The tensors and options of attention over a batch of sequences whose keys lie in pages of two
// pools, under the names that tools and files use. N sequences; q has Tq tokens, those of a
// sequence one after the other: one of a sequence that decodes, more of one whose prompt is read.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [Tq,Hq,D] | f32, f16, bf16 |
// | k_pages | axes by pool_layout: [P,T,Hkv,D], ... | that of q; f8_e4m3, f8_e5m2, i8 |
// | v_pages | the same with Dv | that of k_pages |
// | block_table | [N,M]: page m holds keys [m T, m T + T) of the sequence | i32 |
// | seqlens_k | [N]: keys of the sequence, its tokens of q included; 0 to M T | i32 |
// | cu_seqlens_q | [N+1]: rows of q of the sequences; starts at 0, never decreases | i32 |
// | num_seqs | [1]: sequences in use, 0 to N. Absent: N | i32 |
// | k_new, v_new | written to the pools: [Tq,Hkv,D], [Tq,Hkv,Dv] | that of q or pools |
// | sinks, alibi_slopes; k_scales, v_scales | [Hq or 1,n], [Hq]; [Hkv], of pools of 8 bits | f32 |
// | k_token_scales, v_token_scales | [P,T,Hkv], (PT)HD: [P T,Hkv], of pools of 8 bits | f32 |
// | qq_bias | [E,E]: of tokens of q among each other; -inf hides | f32 |
// | out | [Tq,Hq,Dv] | that of q |
// | lse | [Hq,Tq] | f32, natural logarithm |
// | cu_prefix_seqs | [F+1]: sequences of the groups that share pages; starts at 0 | i32 |
// | prefix_pages | [F]: pages that a group shares, before those of its tokens of q | i32 |
//
// The last axis of all but sinks, scales of tokens and lse has stride 1, other strides are free.
// Tokens of q behind the last sequence in use have out 0 and lse -inf. Nobody looks at entries of
// lists behind num_seqs, at pages behind ceil(seqlens_k / T), or at what pages hold behind
// seqlens_k. Scales of tokens are written where tokens are, unless those have 8 bits already.
//
// Sequences cu_prefix_seqs[g] to cu_prefix_seqs[g + 1] - 1 have the same first prefix_pages[g]
// entries of block_table, which are read once for all of them where that can be done (cascade
// attention); results are those without it, up to rounding. Prompts on CPUs, windows, ALiBi and
// qq_bias have each sequence read its own, as does the policy batch_invariant.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/families/attention/page_args.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct unified_attention_args {
  tensor_view q{};
  tensor_view k_pages{};  ///< chunked_prefill_paged_decode: input and output
  tensor_view v_pages{};
  tensor_view block_table{};
  tensor_view seqlens_k{};
  tensor_view cu_seqlens_q{};
  tensor_view num_seqs{};  ///< optional
  tensor_view k_new{};     ///< chunked_prefill_paged_decode
  tensor_view v_new{};
  tensor_view sinks{};         ///< optional
  tensor_view alibi_slopes{};  ///< optional
  tensor_view qq_bias{};       ///< optional
  tensor_view k_scales{};      ///< optional, pools of 8 bits: beside the option k_scale
  tensor_view v_scales{};

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row

  tensor_view cu_prefix_seqs{};  ///< optional, both: groups of sequences with the same first pages
  tensor_view prefix_pages{};
  /// Optional, pools of 8 bits: beside k_scale and k_scales. chunked_prefill_paged_decode: input
  /// and output.
  tensor_view k_token_scales{};
  tensor_view v_token_scales{};
};

struct unified_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Keys before its own that a row sees. Unset: all. The last W tokens: W - 1.
  std::optional<std::int64_t> window_left{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  page_layout pool_layout = page_layout::PTHD;
  /// Tokens of a page of a (PT)HD pool. Other pools have an axis that says it: 0.
  std::int64_t page_size = 0;
  /// Scores are multiplied by k_scale, out by v_scale: what keys and values of the pools were
  /// divided by when they were written. Must be positive.
  std::optional<double> k_scale{};
  std::optional<double> v_scale{};

  friend bool operator==(const unified_attention_options&,
                         const unified_attention_options&) = default;
};

/// The second writes k_new and v_new to the pools, then does what the first does.
enum class unified_op : std::uint8_t { unified_attention, chunked_prefill_paged_decode };

/// A call of one of them without its memory.
using unified_problem =
    basic_problem<unified_op, unified_attention_args, unified_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline unified_problem problem_of(const unified_attention_args& args,
                                  const unified_attention_options& options = {},
                                  unified_op op = unified_op::unified_attention) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.k_pages, args.v_pages),
          .options = options};
}

}  // namespace tessera
