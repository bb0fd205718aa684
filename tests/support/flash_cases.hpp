// Random legal attention calls, biased to edges: lengths around tile and vector sizes, head
// dimensions that fit nothing, every option alone, in pairs and together.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <limits>
#include <utility>

#include <tessera/families/attention/config.hpp>

#include "flash_case.hpp"
#include "random.hpp"
#include "random_layout.hpp"

namespace tessera::support {

/// What a generated case may be. Zeros and `none` leave the choice to the generator.
struct case_limits {
  dtype type = dtype::none;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;
  attention_features features = every_feature;  ///< traits that need more are left out
  std::int64_t decode_rows = 0;                 ///< most query rows per kv head; 0: no limit
  double work = 2e5;                            ///< most multiply-adds
  std::int64_t longest = 300;                   ///< most rows and keys
  bool aligned = false;  ///< rows of q, k and v start at multiples of 16 bytes
};

/// Whether a row of the table wants rows of q, k and v at multiples of 16 bytes.
constexpr bool wants_alignment(const attention_config& row) noexcept {
  return !is_cpu(row.target) && row.head_dim != 0;
}

/// Limits that make every generated case one that the row takes.
constexpr case_limits limits_of(const attention_config& row) noexcept {
  case_limits limits;
  limits.type = row.type;
  limits.head_dim = row.head_dim;
  limits.v_head_dim = row.v_head_dim;
  limits.features = row.features;
  limits.aligned = wants_alignment(row);
  return limits;
}

/// A length up to `most`, mostly one at which loops change their course, rarely 0.
inline std::int64_t edge_length(random_source& random, std::int64_t most) {
  constexpr std::array<std::int64_t, 23> edges{1,  2,  3,  5,  7,  8,   14,  15,  16,  17,  28, 31,
                                               32, 33, 63, 64, 65, 112, 127, 128, 129, 255, 257};
  if (most <= 0 || random.chance(0.04)) return 0;
  if (random.chance(0.2)) return random.between(1, most);
  const auto end = std::upper_bound(edges.begin(), edges.end(), most);
  return edges[static_cast<std::size_t>(random.below(end - edges.begin()))];
}

inline std::int64_t random_head_dim(random_source& random) {
  if (random.chance(0.25)) return random.between(1, 256);
  return random.pick({1, 2, 3, 8, 16, 17, 24, 32, 40, 64, 72, 80, 96, 128, 192, 256});
}

inline double work_of(const flash_case& example) {
  return static_cast<double>(example.batch * example.q_heads) *
         static_cast<double>(example.q_len + 1) * static_cast<double>(example.kv_len + 1) *
         static_cast<double>(example.head_dim + example.v_head_dim);
}

/// Sizes within the limits.
inline void choose_sizes(flash_case& example, random_source& random, const case_limits& limits) {
  example.type =
      limits.type != dtype::none ? limits.type : random.pick({dtype::f32, dtype::f16, dtype::bf16});
  example.head_dim = limits.head_dim > 0 ? limits.head_dim : random_head_dim(random);
  example.v_head_dim = example.head_dim;
  if (limits.v_head_dim > 0) example.v_head_dim = limits.v_head_dim;
  if (limits.v_head_dim == 0 && limits.head_dim == 0 && random.chance(0.3)) {
    example.v_head_dim = random_head_dim(random);
  }
  example.batch = random.pick({1, 1, 1, 2, 3});
  if (random.chance(0.02)) example.batch = 0;
  std::int64_t group = random.pick({1, 1, 2, 3, 4, 5, 8});
  example.kv_heads = random.pick({1, 1, 2, 3});
  example.q_len = edge_length(random, limits.longest);
  example.kv_len = random.chance(0.2) ? example.q_len : edge_length(random, limits.longest);
  if (limits.decode_rows > 0) {
    group = std::min(group, limits.decode_rows);
    example.q_len = random.chance(0.7) ? 1 : random.between(1, limits.decode_rows / group);
    example.q_len = std::min(example.q_len, limits.decode_rows / group);
  }
  example.q_heads = example.kv_heads * group;
  while (work_of(example) > limits.work &&
         example.batch * example.kv_heads * example.q_len * example.kv_len > 1) {
    if (example.batch > 1) {
      example.batch = 1;
    } else if (example.kv_heads > 1) {
      example.q_heads /= example.kv_heads;
      example.kv_heads = 1;
    } else if (example.q_len > example.kv_len) {
      example.q_len = edge_length(random, example.q_len - 1);
    } else {
      example.kv_len = edge_length(random, example.kv_len - 1);
    }
  }
  // Rows before the first key of a bottom-right diagonal see nothing: not too many of those.
  if (example.q_len > example.kv_len && limits.decode_rows == 0 && random.chance(0.7)) {
    std::swap(example.q_len, example.kv_len);
  }
}

inline score_axes random_score_axes(random_source& random, dtype type) {
  score_axes axes;
  axes.type = type;
  for (bool& spread : axes.spread) spread = random.chance(0.65);
  axes.hidden = random.pick({0.0, 0.05, 0.3});
  axes.hides_rows = random.chance(0.15);
  axes.slack = random.pick({0, 0, 1, 9});
  return axes;
}

inline dtype random_bias_type(random_source& random, dtype type) {
  return random.pick({dtype::f32, type, dtype::f16, dtype::bf16});
}

inline std::int64_t random_window(random_source& random, const flash_case& example) {
  if (random.chance(0.03)) return std::numeric_limits<std::int64_t>::max();
  return random.chance(0.5) ? random.pick({0, 1, 2, 15, 16, 63, 64})
                            : random.between(0, std::max(example.q_len, example.kv_len) + 2);
}

inline std::vector<std::int64_t> random_lengths(random_source& random, std::int64_t count,
                                                std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 0; n < count; ++n) {
    lengths.push_back(random.chance(0.5) ? most : edge_length(random, most));
  }
  return lengths;
}

inline void make_packed(flash_case& example, random_source& random) {
  example.packed = true;
  example.q_lengths = random_lengths(random, example.batch, example.q_len);
  example.k_lengths = random_lengths(random, example.batch, example.kv_len);
  example.q_len = random.chance(0.2) ? random.between(0, 3) : 0;
  example.kv_len = random.chance(0.2) ? random.between(0, 3) : 0;
  for (const std::int64_t length : example.q_lengths) example.q_len += length;
  for (const std::int64_t length : example.k_lengths) example.kv_len += length;
}

inline void make_strided(flash_case& example, random_source& random) {
  const int rank = example.packed ? 3 : 4;
  example.q_layout = random_layout(random, rank, true, true);
  example.k_layout = random_layout(random, rank, true, true);
  example.v_layout = random_layout(random, rank, true, true);
  example.out_layout = random_layout(random, rank, true, false);
  example.lse_layout = random_layout(random, example.packed ? 2 : 3, false, false);
  example.bias_layout = random_layout(random, 4, false, true);
  example.mask_layout = random_layout(random, 4, false, true);
  example.weights_layout = random_layout(random, 4, true, false);
  example.segment_layout = random_layout(random, 2, false, false);
}

/// Traits that are options; false for others.
inline bool apply_option_trait(flash_case& example, flash_trait trait, random_source& random) {
  switch (trait) {
    case flash_trait::causal:
      example.options.causal = true;
      break;
    case flash_trait::top_left:
      example.options.causal_alignment = alignment::top_left;
      break;
    case flash_trait::window_left:
      example.options.window_left = random_window(random, example);
      break;
    case flash_trait::window_right:
      example.options.window_right = random_window(random, example);
      break;
    case flash_trait::scale:
      example.options.softmax_scale = random.pick({0.0, 1.0, 0.3, 0.125, -0.25});
      break;
    case flash_trait::soft_cap:
      example.options.logits_soft_cap = random.pick({0.5, 2.0, 30.0, 50.0});
      break;
    case flash_trait::dropout:
      example.options.dropout_probability = random.pick({0.1, 0.25, 0.5, 0.9});
      example.options.dropout_seed = random.bits();
      break;
    case flash_trait::unnormalized:
      example.options.normalize = false;
      example.wants_row_max = true;
      break;
    default:
      return false;
  }
  return true;
}

/// Traits that are tensors shaped like the scores, or logits; false for others.
inline bool apply_score_trait(flash_case& example, flash_trait trait, random_source& random) {
  switch (trait) {
    case flash_trait::bias_pre:
      example.bias_pre = random_score_axes(random, random_bias_type(random, example.type));
      break;
    case flash_trait::bias_post:
      example.bias_post = random_score_axes(random, random_bias_type(random, example.type));
      break;
    case flash_trait::mask:
      example.mask = random_score_axes(random, dtype::u8);
      if (example.mask->hidden == 0.0) example.mask->hidden = 0.3;
      break;
    case flash_trait::weights:
      example.op = flash_op::attention;
      example.weights = random.pick({dtype::f32, example.type});
      break;
    case flash_trait::large_logits:
      example.logit_size = random.pick({8.0, 60.0});
      break;
    default:
      return false;
  }
  return true;
}

/// Traits of tokens, sequences and memory; false for others.
inline bool apply_token_trait(flash_case& example, flash_trait trait, random_source& random) {
  switch (trait) {
    case flash_trait::segments:
      example.segments = example.q_len == example.kv_len && random.chance(0.5)
                             ? segment_kind::shared
                             : segment_kind::separate;
      break;
    case flash_trait::sinks:
      example.sink_count = random.pick({1, 1, 2, 4});
      example.sinks_per_head = random.chance(0.6);
      example.extreme_sinks = random.chance(0.2);
      break;
    case flash_trait::q_lengths:
      example.q_lengths = random_lengths(random, example.batch, example.q_len);
      break;
    case flash_trait::k_lengths:
      example.k_lengths = random_lengths(random, example.batch, example.kv_len);
      break;
    case flash_trait::packed:
      make_packed(example, random);
      break;
    case flash_trait::strides:
      make_strided(example, random);
      break;
    default:
      return false;
  }
  return true;
}

/// Gives the case one property. `packed` goes before `strides`, sizes before everything.
inline void apply_trait(flash_case& example, flash_trait trait, random_source& random) {
  [[maybe_unused]] const bool applied = apply_option_trait(example, trait, random) ||
                                        apply_score_trait(example, trait, random) ||
                                        apply_token_trait(example, trait, random);
  assert(applied);
}

/// A case within the limits that has `traits` (compatible with each other) and nothing else.
template <class Traits>
flash_case case_with(const Traits& traits, random_source& random, const case_limits& limits) {
  flash_case example;
  choose_sizes(example, random, limits);
  for (const flash_trait trait : all_flash_traits) {
    if (std::find(traits.begin(), traits.end(), trait) != traits.end()) {
      apply_trait(example, trait, random);
    }
  }
  if (limits.aligned) {
    const int rank = example.packed ? 3 : 4;
    align_rows(example.q_layout, rank, example.head_dim, size_of(example.type));
    align_rows(example.k_layout, rank, example.head_dim, size_of(example.type));
    align_rows(example.v_layout, rank, example.v_head_dim, size_of(example.type));
  }
  example.seed = random.bits();
  example.wants_lse = random.chance(0.8);
  if (!example.options.normalize) example.wants_row_max = random.chance(0.8);
  example.wants_dropout_mask =
      !example.packed && example.options.dropout_probability > 0.0 && random.chance(0.5);
  return example;
}

/// A case with a random set of traits.
inline flash_case random_case(random_source& random, const case_limits& limits = {}) {
  const bool plain = limits.v_head_dim == limits.head_dim && random.chance(0.1);
  const flash_op op = plain ? flash_op::scaled_dot_product_attention : flash_op::flash_attention;
  const double density = random.pick({0.05, 0.15, 0.3, 0.6});
  std::vector<flash_trait> traits;
  std::array<flash_trait, all_flash_traits.size()> shuffled = all_flash_traits;
  for (std::size_t n = shuffled.size() - 1; n > 0; --n) {
    std::swap(shuffled[n],
              shuffled[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n) + 1))]);
  }
  for (const flash_trait trait : shuffled) {
    const bool fits = std::all_of(traits.begin(), traits.end(),
                                  [&](flash_trait other) { return compatible(trait, other); });
    if (fits && takes(op, trait) && limits.features.contains(feature_of(trait)) &&
        random.chance(density)) {
      traits.push_back(trait);
    }
  }
  flash_case example = case_with(traits, random, limits);
  if (op == flash_op::scaled_dot_product_attention) {
    example.op = op;
    example.v_head_dim = example.head_dim;
  }
  return example;
}

}  // namespace tessera::support
