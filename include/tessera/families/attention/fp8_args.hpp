// The tensors and options of fp8_attention, under the names that tools and files use.
//
// | tensor | shape (dense; packed) | dtype |
// |---|---|---|
// | q | [B,Sq,Hq,D]; [Tq,Hq,D] | f8_e4m3 |
// | k | [B,Sk,Hkv,D]; [Tk,Hkv,D] | f8_e4m3 |
// | v | [B,Sk,Hkv,Dv]; [Tk,Hkv,Dv] | f8_e4m3 |
// | q_scales, k_scales, v_scales | [Hkv]: what elements are multiplied by | f32 |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | cu_seqlens_q, cu_seqlens_k | [N+1] (packed only) | i32 |
// | seqlens_q, seqlens_k | [B] (dense only) | i32 |
// | out | [B,Sq,Hq,Dv]; [Tq,Hq,Dv] | bf16, f16 |
// | lse | [B,Hq,Sq]; [Hq,Tq] | f32, natural logarithm |
//
// The last axis of q, k, v and out has stride 1, so have scales; every other stride is free. Query
// heads that share a head of k share its number of q_scales.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/families/attention/options.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; q, k, v and out are required.
struct fp8_attention_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view q_scales{};  ///< absent: 1
  tensor_view k_scales{};
  tensor_view v_scales{};
  tensor_view sinks{};         ///< logits that enter the denominator only
  tensor_view cu_seqlens_q{};  ///< packed: sequence n is rows [cu[n], cu[n+1])
  tensor_view cu_seqlens_k{};
  tensor_view seqlens_q{};  ///< dense: used length of each batch entry
  tensor_view seqlens_k{};

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row, sinks included
};

struct fp8_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Row i sees keys up to its aligned position.
  bool causal = false;
  alignment causal_alignment = alignment::bottom_right;
  /// Keys before the aligned position that are visible, itself excluded. Unset: unbounded.
  std::optional<std::int64_t> window_left{};
  /// Keys after the aligned position that are visible. Unset: unbounded.
  std::optional<std::int64_t> window_right{};

  friend bool operator==(const fp8_attention_options&, const fp8_attention_options&) = default;
};

/// Operations on tensors of 8 bits.
enum class fp8_op : std::uint8_t { fp8_attention };

/// A call of one of them without its memory.
using fp8_problem = basic_problem<fp8_op, fp8_attention_args, fp8_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline fp8_problem problem_of(const fp8_attention_args& args,
                              const fp8_attention_options& options = {},
                              fp8_op op = fp8_op::fp8_attention) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.k, args.v),
          .options = options};
}

}  // namespace tessera
