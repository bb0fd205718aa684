// What is asked of flash attention at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/spec/size_bucket.hpp>

namespace tessera {

/// Operations served by the flash attention forward family.
enum class flash_op : std::uint8_t { flash_attention, attention, scaled_dot_product_attention };

constexpr std::string_view name_of(flash_op op) noexcept {
  switch (op) {
    case flash_op::flash_attention:
      return "flash_attention";
    case flash_op::attention:
      return "attention";
    case flash_op::scaled_dot_product_attention:
      return "scaled_dot_product_attention";
  }
  return "invalid";
}

/// The shapes of the tensors of `flash_attention_args` (outputs only where they change the work)
/// and the options that a kernel choice may depend on.
struct flash_problem {
  flash_op op = flash_op::flash_attention;
  tensor_shape q{}, k{}, v{};
  tensor_shape bias_pre{}, bias_post{}, mask{};
  tensor_shape q_segment_ids{}, kv_segment_ids{};
  tensor_shape sinks{};
  tensor_shape cu_seqlens_q{}, cu_seqlens_k{};
  tensor_shape seqlens_q{}, seqlens_k{};
  tensor_shape weights{};
  /// Device tensors only: some row of q, k or v does not start at a multiple of 16 bytes.
  bool unaligned = false;
  flash_attention_options options{};

  friend bool operator==(const flash_problem&, const flash_problem&) = default;
};

/// The sizes of a problem, read off its shapes. Packed problems report the mean lengths.
struct attention_sizes {
  std::int64_t batch = 0;  ///< entries or sequences
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
};

constexpr bool is_packed(const flash_problem& problem) noexcept {
  return problem.cu_seqlens_q.present();
}

constexpr attention_sizes sizes_of(const flash_problem& problem) noexcept {
  const auto& q = problem.q.extent;
  const auto& k = problem.k.extent;
  const auto& v = problem.v.extent;
  if (is_packed(problem)) {
    const std::int64_t sequences = std::max<std::int64_t>(problem.cu_seqlens_q.extent[0] - 1, 0);
    const std::int64_t divisor = std::max<std::int64_t>(sequences, 1);
    return {sequences, (q[0] + divisor - 1) / divisor, (k[0] + divisor - 1) / divisor, q[1],
            k[1],      static_cast<int>(q[2]),         static_cast<int>(v[2])};
  }
  return {q[0], q[1], k[1], q[2], k[2], static_cast<int>(q[3]), static_cast<int>(v[3])};
}

/// The smallest mask mode that expresses the problem's options.
constexpr mask_mode mask_needed(const flash_problem& problem) noexcept {
  const auto& options = problem.options;
  if (options.window_left || options.window_right) return mask_mode::window;
  return options.causal ? mask_mode::causal : mask_mode::full;
}

/// The features a row must have to take the problem.
constexpr attention_features features_needed(const flash_problem& problem) noexcept {
  attention_features needed{};
  const auto need = [&](bool condition, attention_feature one) {
    if (condition) needed = needed | one;
  };
  need(is_packed(problem), attention_feature::varlen);
  need(problem.seqlens_q.present() || problem.seqlens_k.present(), attention_feature::lengths);
  need(problem.sinks.present(), attention_feature::sinks);
  need(!problem.options.normalize, attention_feature::unnormalized);
  need(problem.options.logits_soft_cap.has_value(), attention_feature::soft_cap);
  need(problem.bias_pre.present() || problem.bias_post.present(), attention_feature::bias);
  need(problem.mask.present(), attention_feature::mask);
  need(problem.q_segment_ids.present(), attention_feature::segments);
  need(problem.options.dropout_probability > 0.0, attention_feature::dropout);
  need(problem.weights.present(), attention_feature::weights);
  return needed;
}

/// Exact part of a table key: two problems with different identities never share a choice.
struct attention_identity {
  dtype type = dtype::none;
  mask_mode mask = mask_mode::full;
  attention_features features{};
  std::int16_t head_dim = 0;
  std::int16_t v_head_dim = 0;
  std::int16_t group = 0;  ///< query heads per key/value head
  bool aligned16 = true;   ///< not flash_problem::unaligned
  friend constexpr bool operator==(const attention_identity&, const attention_identity&) = default;
};

/// Bucketed part of a table key: base-2 logarithms, rounded up; 0 stands for 0 and 1.
struct attention_bucket {
  std::uint8_t q_len = 0;
  std::uint8_t kv_len = 0;
  std::uint8_t batch_heads = 0;  ///< batch times key/value heads
  std::uint8_t window = 0;       ///< keys a row can see at most because of the window; 0 = all
  friend constexpr bool operator==(const attention_bucket&, const attention_bucket&) = default;
};

struct attention_key {
  attention_identity identity{};
  attention_bucket bucket{};
  friend constexpr bool operator==(const attention_key&, const attention_key&) = default;
};

}  // namespace tessera
