// Which rows can run which problems, and what is in the way if one cannot.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/problem.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on, read off a problem once. Eligibility and cost
/// see nothing else, so a remembered choice is sound if exactly this is compared.
struct attention_demand {
  dtype type = dtype::none;
  mask_mode mask = mask_mode::full;
  attention_features features{};
  bool causal = false;
  bool top_left = false;
  std::int64_t window_left = -1;  ///< -1: unbounded
  std::int64_t window_right = -1;
  attention_sizes sizes{};
  bool aligned16 = true;  ///< rows of q, k and v start at multiples of 16 bytes, or are on the CPU

  friend constexpr bool operator==(const attention_demand& a, const attention_demand& b) noexcept {
    return a.type == b.type && a.mask == b.mask && a.features == b.features &&
           a.causal == b.causal && a.top_left == b.top_left && a.window_left == b.window_left &&
           a.window_right == b.window_right && a.sizes.batch == b.sizes.batch &&
           a.sizes.q_len == b.sizes.q_len && a.sizes.kv_len == b.sizes.kv_len &&
           a.sizes.q_heads == b.sizes.q_heads && a.sizes.kv_heads == b.sizes.kv_heads &&
           a.sizes.head_dim == b.sizes.head_dim && a.sizes.v_head_dim == b.sizes.v_head_dim &&
           a.aligned16 == b.aligned16;
  }
};

constexpr attention_demand demand_of(const flash_problem& problem) noexcept {
  return {.type = problem.q.type,
          .mask = mask_needed(problem),
          .features = features_needed(problem),
          .causal = problem.options.causal,
          .top_left = problem.options.causal_alignment == alignment::top_left,
          .window_left = problem.options.window_left.value_or(-1),
          .window_right = problem.options.window_right.value_or(-1),
          .sizes = sizes_of(problem),
          .aligned16 = !problem.unaligned};
}

/// The table key of a demand.
constexpr attention_key key_of(const attention_demand& demand) noexcept {
  const attention_sizes& sizes = demand.sizes;
  attention_key key;
  key.identity.type = demand.type;
  key.identity.mask = demand.mask;
  key.identity.features = demand.features;
  key.identity.head_dim = static_cast<std::int16_t>(sizes.head_dim);
  key.identity.v_head_dim = static_cast<std::int16_t>(sizes.v_head_dim);
  key.identity.group =
      static_cast<std::int16_t>(sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0);
  key.identity.aligned16 = demand.aligned16;
  key.bucket.q_len = size_bucket(sizes.q_len);
  key.bucket.kv_len = size_bucket(sizes.kv_len);
  key.bucket.batch_heads = size_bucket(sizes.batch * sizes.kv_heads);
  if (demand.window_left >= 0 && (demand.window_right >= 0 || demand.causal)) {
    const std::int64_t right = demand.causal ? 0 : demand.window_right;
    const std::int64_t left = std::min<std::int64_t>(demand.window_left, INT32_MAX);
    key.bucket.window = size_bucket(left + std::min<std::int64_t>(right, INT32_MAX) + 1);
    if (key.bucket.window == 0) key.bucket.window = 1;
  }
  return key;
}
constexpr attention_key key_of(const flash_problem& problem) noexcept {
  return key_of(demand_of(problem));
}

/// The first thing that keeps a row from running a problem.
enum class attention_mismatch : std::uint8_t {
  none,
  type,
  head_dim,
  v_head_dim,
  mask,
  features,
  alignment,
};

/// CUDA rows of a fixed head dim copy 16 bytes at a time; those of any take tokens at any address.
constexpr bool needs_aligned_rows(const attention_config& config) noexcept {
  return is_cuda(config.target) && config.head_dim != 0;
}

/// Compares a row with what is asked; the device is not looked at.
constexpr attention_mismatch mismatch_of(const attention_config& config,
                                         const attention_demand& demand) noexcept {
  const int v_head_dim = config.v_head_dim != 0 ? config.v_head_dim : config.head_dim;
  if (config.type != demand.type) return attention_mismatch::type;
  if (config.head_dim != 0 && config.head_dim != demand.sizes.head_dim) {
    return attention_mismatch::head_dim;
  }
  if (v_head_dim != 0 && v_head_dim != demand.sizes.v_head_dim)
    return attention_mismatch::v_head_dim;
  if (config.mask < demand.mask) return attention_mismatch::mask;
  if (!config.features.contains(demand.features)) return attention_mismatch::features;
  if (needs_aligned_rows(config) && !demand.aligned16) return attention_mismatch::alignment;
  return attention_mismatch::none;
}

/// The same for a problem; its shapes must fit together (see `lower`).
constexpr attention_mismatch mismatch_of(const attention_config& config,
                                         const flash_problem& problem) noexcept {
  return mismatch_of(config, demand_of(problem));
}

/// "full", "causal", "window".
constexpr std::string_view name_of(mask_mode mask) noexcept {
  switch (mask) {
    case mask_mode::full:
      return "full";
    case mask_mode::causal:
      return "causal";
    case mask_mode::window:
      return "window";
  }
  return "invalid";
}

/// Names of `all_attention_features`, in its order.
inline constexpr std::array<std::string_view, all_attention_features.size()>
    attention_feature_names{"varlen", "lengths", "sinks",    "unnormalized", "soft_cap",
                            "bias",   "mask",    "segments", "dropout",      "weights"};

/// "bias+mask"; "nothing" for the empty set.
inline std::string list_of(attention_features features) {
  std::string list;
  for (std::size_t i = 0; i < all_attention_features.size(); ++i) {
    if (!features.has(all_attention_features[i])) continue;
    if (!list.empty()) list += '+';
    list += attention_feature_names[i];
  }
  return list.empty() ? "nothing" : list;
}

/// The mismatch as a sentence with both sides: "head_dim is 96, the row has 128".
inline std::string sentence_of(attention_mismatch mismatch, const attention_config& config,
                               const attention_demand& demand) {
  const auto sides = [](std::string_view what, std::string_view asked, std::string_view row) {
    std::string sentence(what);
    return sentence.append(" is ").append(asked).append(", the row has ").append(row);
  };
  switch (mismatch) {
    case attention_mismatch::none:
      return "the row runs the problem";
    case attention_mismatch::type:
      return sides("dtype", name_of(demand.type), name_of(config.type));
    case attention_mismatch::head_dim:
      return sides("head_dim", std::to_string(demand.sizes.head_dim),
                   std::to_string(config.head_dim));
    case attention_mismatch::v_head_dim:
      return sides("v_head_dim", std::to_string(demand.sizes.v_head_dim),
                   std::to_string(config.v_head_dim != 0 ? config.v_head_dim : config.head_dim));
    case attention_mismatch::mask:
      return sides("mask", name_of(demand.mask), name_of(config.mask));
    case attention_mismatch::features:
      return list_of(demand.features) + " is needed, the row lacks " +
             list_of(demand.features.without(config.features));
    case attention_mismatch::alignment:
      return "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs";
  }
  return "invalid";
}
inline std::string sentence_of(attention_mismatch mismatch, const attention_config& config,
                               const flash_problem& problem) {
  return sentence_of(mismatch, config, demand_of(problem));
}

}  // namespace tessera
