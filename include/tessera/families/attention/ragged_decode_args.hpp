// The tensors and options of ragged_decode_attention, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [B,Hq,D]: a token of each entry | f32, f16, bf16 |
// | k, v | [B,S,Hkv,D], [B,S,Hkv,Dv] | that of q |
// | kv_start | [B]: the first key of the entry; below 0 counts as 0 | i32 |
// | kv_end | [B]: one behind the last key; the token stands just before it | i32 |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | out | [B,Hq,Dv] | that of q |
// | lse | [B,Hq] | f32, natural logarithm |
//
// The last axis of q, k, v and out has stride 1, so have kv_start and kv_end; every other stride is
// free.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; all but sinks and lse are required.
struct ragged_decode_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view kv_start{};
  tensor_view kv_end{};
  tensor_view sinks{};  ///< logits that take part in the softmax and have no values

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row, sinks included
};

struct ragged_decode_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Keys before the token that are visible. Unset: all.
  std::optional<std::int64_t> window_left{};
  /// Keys behind it; there are some only where kv_end is beyond what the entry holds. Unset: all.
  std::optional<std::int64_t> window_right{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};

  friend bool operator==(const ragged_decode_options&, const ragged_decode_options&) = default;
};

/// Operations on ranges of keys.
enum class ragged_decode_op : std::uint8_t { ragged_decode_attention };

/// A call of one of them without its memory.
using ragged_decode_problem =
    basic_problem<ragged_decode_op, ragged_decode_args, ragged_decode_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline ragged_decode_problem problem_of(
    const ragged_decode_args& args, const ragged_decode_options& options = {},
    ragged_decode_op op = ragged_decode_op::ragged_decode_attention) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.k, args.v),
          .options = options};
}

}  // namespace tessera
