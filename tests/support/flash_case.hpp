// One generated attention call as plain data: sizes, options, which tensors exist and how they lie
// in memory. Values follow from `seed`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>

#include "guarded_tensor.hpp"

namespace tessera::support {

/// A tensor shaped like the scores. Axes that are not spread have extent 1.
struct score_axes {
  dtype type = dtype::f32;
  std::array<bool, 4> spread{true, true, true, true};  ///< batch, head, row, key
  std::int64_t slack = 0;   ///< packed: rows and keys beyond the longest sequence
  double hidden = 0.0;      ///< share of elements that hide: -inf in a bias, 0 in a mask
  bool hides_rows = false;  ///< hide whole rows and keys now and then
};

enum class segment_kind : std::uint8_t { none, shared, separate };

struct flash_case {
  std::uint64_t seed = 0;
  flash_op op = flash_op::flash_attention;
  dtype type = dtype::f32;
  bool packed = false;
  std::int64_t batch = 1;  ///< entries, or sequences when packed
  std::int64_t q_len = 1;  ///< rows per entry; packed: rows of the tensor
  std::int64_t kv_len = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  std::int64_t v_head_dim = 1;
  std::vector<std::int64_t> q_lengths;  ///< seqlens_q, or sequence lengths when packed
  std::vector<std::int64_t> k_lengths;
  flash_attention_options options{};

  std::optional<score_axes> bias_pre, bias_post, mask;
  segment_kind segments = segment_kind::none;
  std::int64_t sink_count = 0;
  bool sinks_per_head = true;
  bool extreme_sinks = false;  ///< 1e4, -1e4 and -inf among them
  double logit_size = 1.0;     ///< q is multiplied by this

  bool wants_lse = true;
  bool wants_row_max = false;
  dtype weights = dtype::none;
  bool wants_dropout_mask = false;

  bool poison = true;  ///< NaN and Inf wherever no row looks
  tensor_layout q_layout{}, k_layout{}, v_layout{}, out_layout{}, lse_layout{};
  tensor_layout bias_layout{}, mask_layout{}, weights_layout{}, segment_layout{};
};

/// One property a case may have. Generators combine them; `apply_trait` says what each means.
enum class flash_trait : std::uint8_t {
  causal,
  top_left,
  window_left,
  window_right,
  scale,
  soft_cap,
  bias_pre,
  bias_post,
  mask,
  segments,
  sinks,
  dropout,
  q_lengths,
  k_lengths,
  packed,
  unnormalized,
  weights,
  strides,
  large_logits,
};

inline constexpr std::array all_flash_traits{
    flash_trait::causal,       flash_trait::top_left,  flash_trait::window_left,
    flash_trait::window_right, flash_trait::scale,     flash_trait::soft_cap,
    flash_trait::bias_pre,     flash_trait::bias_post, flash_trait::mask,
    flash_trait::segments,     flash_trait::sinks,     flash_trait::dropout,
    flash_trait::q_lengths,    flash_trait::k_lengths, flash_trait::packed,
    flash_trait::unnormalized, flash_trait::weights,   flash_trait::strides,
    flash_trait::large_logits};

constexpr std::string_view name_of(flash_trait trait) noexcept {
  constexpr std::array<std::string_view, all_flash_traits.size()> names{
      "causal",       "top_left", "window_left", "window_right", "scale",
      "soft_cap",     "bias_pre", "bias_post",   "mask",         "segments",
      "sinks",        "dropout",  "q_lengths",   "k_lengths",    "packed",
      "unnormalized", "weights",  "strides",     "large_logits"};
  return names[static_cast<std::size_t>(trait)];
}

/// The feature a row needs for the trait; empty where every row has it.
constexpr attention_features feature_of(flash_trait trait) noexcept {
  switch (trait) {
    case flash_trait::soft_cap:
      return attention_features{} | attention_feature::soft_cap;
    case flash_trait::bias_pre:
    case flash_trait::bias_post:
      return attention_features{} | attention_feature::bias;
    case flash_trait::mask:
      return attention_features{} | attention_feature::mask;
    case flash_trait::segments:
      return attention_features{} | attention_feature::segments;
    case flash_trait::sinks:
      return attention_features{} | attention_feature::sinks;
    case flash_trait::dropout:
      return attention_features{} | attention_feature::dropout;
    case flash_trait::q_lengths:
    case flash_trait::k_lengths:
      return attention_features{} | attention_feature::lengths;
    case flash_trait::packed:
      return attention_features{} | attention_feature::varlen;
    case flash_trait::unnormalized:
      return attention_features{} | attention_feature::unnormalized;
    case flash_trait::weights:
      return attention_features{} | attention_feature::weights;
    case flash_trait::causal:
    case flash_trait::top_left:
    case flash_trait::window_left:
    case flash_trait::window_right:
    case flash_trait::scale:
    case flash_trait::strides:
    case flash_trait::large_logits:
      break;
  }
  return {};
}

/// True if a legal call can have both.
constexpr bool compatible(flash_trait a, flash_trait b) noexcept {
  const auto dense_only = [](flash_trait trait) {
    return trait == flash_trait::segments || trait == flash_trait::q_lengths ||
           trait == flash_trait::k_lengths || trait == flash_trait::weights;
  };
  const auto either = [&](flash_trait trait, auto other) {
    return (a == trait && other(b)) || (b == trait && other(a));
  };
  const auto is = [](flash_trait wanted) {
    return [wanted](flash_trait t) { return t == wanted; };
  };
  return !either(flash_trait::packed, dense_only) &&
         !either(flash_trait::unnormalized, is(flash_trait::weights));
}

/// True if the operation takes the trait.
constexpr bool takes(flash_op op, flash_trait trait) noexcept {
  if (op != flash_op::scaled_dot_product_attention) return true;
  return trait != flash_trait::soft_cap && trait != flash_trait::sinks &&
         trait != flash_trait::dropout && trait != flash_trait::unnormalized &&
         trait != flash_trait::weights;
}

}  // namespace tessera::support
