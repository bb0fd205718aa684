// Which rows can run which problems, what is in the way if one cannot, and how far off it is.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/problem.hpp>

namespace tessera {

/// The first thing that keeps a row from running a problem.
enum class attention_mismatch : std::uint8_t {
  none,
  type,
  head_dim,
  v_head_dim,
  mask,
  keys,
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
  if (config.keys != demand.keys()) return attention_mismatch::keys;
  if (!config.features.contains(demand.features)) return attention_mismatch::features;
  if (needs_aligned_rows(config) && !demand.aligned16) return attention_mismatch::alignment;
  return attention_mismatch::none;
}

/// The same for a problem of any operation; its shapes must fit together (see `lower`).
template <class Problem>
requires requires(const Problem& problem) {
  { demand_of(problem) } -> std::same_as<attention_demand>;
}
constexpr attention_mismatch mismatch_of(const attention_config& config,
                                         const Problem& problem) noexcept {
  return mismatch_of(config, demand_of(problem));
}

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
    case attention_mismatch::keys:
      return sides("key storage", name_of(demand.keys()), name_of(config.keys));
    case attention_mismatch::features:
      return list_of(demand.features) + " is needed, the row lacks " +
             list_of(demand.features.without(config.features));
    case attention_mismatch::alignment:
      return "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs";
  }
  return "invalid";
}
template <class Problem>
requires requires(const Problem& problem) {
  demand_of(problem);
}
std::string sentence_of(attention_mismatch mismatch, const attention_config& config,
                        const Problem& problem) {
  return sentence_of(mismatch, config, demand_of(problem));
}

/// How far a row is from running the problem; 0: it does.
constexpr int distance_of(const attention_config& config, const attention_demand& demand) noexcept {
  attention_config nearer = config;
  int differences = 0;
  const auto differs = [&](bool condition, int weight) { differences += condition ? weight : 0; };
  differs(config.type != demand.type, 8);
  differs(config.head_dim != 0 && config.head_dim != demand.sizes.head_dim, 4);
  nearer.type = demand.type;
  nearer.head_dim = nearer.v_head_dim = 0;
  differs(mismatch_of(config, demand) == attention_mismatch::v_head_dim, 4);
  differs(config.mask < demand.mask, 2);
  nearer.mask = mask_mode::window;
  differs(config.keys != demand.keys(), 2);
  nearer.keys = demand.keys();
  differs(mismatch_of(nearer, demand) != attention_mismatch::none, 1);
  return differences;
}
/// True for rows that take head dims as they come: the last resort of a backend.
constexpr bool is_generic(const attention_config& config) noexcept {
  return config.head_dim == 0;
}

}  // namespace tessera
