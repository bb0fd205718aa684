// What a choice among attention rows may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/fp8_args.hpp>
#include <tessera/families/attention/page_args.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/ragged_decode_args.hpp>
#include <tessera/families/attention/ragged_page_args.hpp>
#include <tessera/families/attention/unified_args.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// The sizes of a call. Packed calls report the mean lengths.
struct attention_sizes {
  std::int64_t batch = 0;  ///< entries or sequences
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t v_head_dim = 0;
  friend constexpr bool operator==(const attention_sizes&, const attention_sizes&) = default;
};

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else, so a
/// remembered choice is sound if exactly this is compared.
struct attention_demand {
  dtype type = dtype::none;
  mask_mode mask = mask_mode::full;
  attention_features features{};
  bool causal = false;
  bool top_left = false;
  bool aligned16 = true;  ///< rows of q, k and v start at multiples of 16 bytes, or are on the CPU
  dtype pool_type = dtype::none;  ///< of keys in pages, if it is not `type`
  std::int64_t window_left = -1;  ///< -1: unbounded
  std::int64_t window_right = -1;
  attention_sizes sizes{};
  std::int64_t page_size = 0;  ///< tokens of a page; 0: keys are contiguous
  /// Of sequences whose first pages are read once for all; `alone`: bits must not depend on them.
  std::int64_t prefix_groups = 0;
  static constexpr std::int64_t alone = -1;

  constexpr key_storage keys() const noexcept {
    return page_size > 0 ? key_storage::paged : key_storage::contiguous;
  }
  friend constexpr bool operator==(const attention_demand&, const attention_demand&) = default;
};

template <class Args>
requires requires(const Args& args) {
  args.cu_seqlens_k;
}
constexpr bool is_packed(const Args& args) noexcept {
  return args.cu_seqlens_q.present();
}

/// Of tensors that are dense, or packed with offsets of keys.
template <class Args>
requires requires(const Args& args) {
  args.cu_seqlens_k;
}
constexpr attention_sizes sizes_of(const Args& args) noexcept {
  const auto& q = args.q.extent;
  const auto& k = args.k.extent;
  const auto& v = args.v.extent;
  if (!is_packed(args)) {
    return {q[0],
            q[1],
            k[1],
            q[2],
            k[2],
            static_cast<std::int32_t>(q[3]),
            static_cast<std::int32_t>(v[3])};
  }
  const std::int64_t sequences = std::max<std::int64_t>(args.cu_seqlens_q.extent[0] - 1, 0);
  const std::int64_t divisor = std::max<std::int64_t>(sequences, 1);
  return {sequences, (q[0] + divisor - 1) / divisor,  (k[0] + divisor - 1) / divisor, q[1],
          k[1],      static_cast<std::int32_t>(q[2]), static_cast<std::int32_t>(v[2])};
}

constexpr bool is_packed(const flash_problem& problem) noexcept {
  return is_packed(problem.tensors);
}
constexpr attention_sizes sizes_of(const flash_problem& problem) noexcept {
  return sizes_of(problem.tensors);
}

/// The smallest mask mode that expresses the options.
template <class Options>
constexpr mask_mode mask_needed(const Options& options) noexcept {
  if (options.window_left || options.window_right) return mask_mode::window;
  return options.causal ? mask_mode::causal : mask_mode::full;
}

/// What the tensors need that operations on tokens share.
template <class Args>
constexpr attention_features features_of_tensors(const Args& args) noexcept {
  attention_features needed{};
  if (is_packed(args)) needed = needed | attention_feature::varlen;
  if (args.seqlens_q.present() || args.seqlens_k.present()) {
    needed = needed | attention_feature::lengths;
  }
  if (args.sinks.present()) needed = needed | attention_feature::sinks;
  return needed;
}

/// The features a row must have.
constexpr attention_features features_needed(const flash_attention_args& args,
                                             const flash_attention_options& options) noexcept {
  attention_features needed = features_of_tensors(args);
  const auto need = [&](bool condition, attention_feature feature) {
    if (condition) needed = needed | feature;
  };
  need(!options.normalize, attention_feature::unnormalized);
  need(options.logits_soft_cap.has_value(), attention_feature::soft_cap);
  need(args.bias_pre.present() || args.bias_post.present(), attention_feature::bias);
  need(args.mask.present(), attention_feature::mask);
  need(args.q_segment_ids.present(), attention_feature::segments);
  need(options.dropout_probability > 0.0, attention_feature::dropout);
  need(args.weights.present(), attention_feature::weights);
  return needed;
}

/// Of tensors of tokens, dense or packed.
template <class Args, class Options>
constexpr attention_demand demand_of_tokens(const Args& args, const Options& options,
                                            bool unaligned, attention_features needed) noexcept {
  return {.type = args.q.type,
          .mask = mask_needed(options),
          .features = needed,
          .causal = options.causal,
          .top_left = options.causal_alignment == alignment::top_left,
          .aligned16 = !unaligned,
          .window_left = options.window_left.value_or(-1),
          .window_right = options.window_right.value_or(-1),
          .sizes = sizes_of(args)};
}

constexpr attention_demand demand_of(flash_op, const flash_attention_args& args,
                                     const flash_attention_options& options,
                                     bool unaligned) noexcept {
  return demand_of_tokens(args, options, unaligned, features_needed(args, options));
}

constexpr attention_demand demand_of(fp8_op, const fp8_attention_args& args,
                                     const fp8_attention_options& options,
                                     bool unaligned) noexcept {
  return demand_of_tokens(args, options, unaligned, features_of_tensors(args));
}

/// The type of a pool; none if it is that of q.
constexpr dtype other_type(const tensor_view& pool, const tensor_view& q) noexcept {
  return pool.type == q.type ? dtype::none : pool.type;
}

/// Lengths are not known: sequences count as if they filled their pages.
constexpr attention_demand demand_of(page_op op, const page_attention_args& args,
                                     const page_attention_options& options,
                                     bool unaligned) noexcept {
  const bool prefill = op == page_op::prefill_page_attention;
  const std::int64_t page_size = page_tokens(args.k_pages, options);
  attention_features needed{static_cast<std::uint16_t>(attention_feature::lengths)};
  if (options.logits_soft_cap) needed = needed | attention_feature::soft_cap;
  const bool causal = prefill || options.window_left.has_value();
  return {.type = args.q.type,
          .mask = options.window_left ? mask_mode::window
                  : causal            ? mask_mode::causal
                                      : mask_mode::full,
          .features = needed,
          .causal = causal,
          .aligned16 = !unaligned,
          .pool_type = other_type(args.k_pages, args.q),
          .window_left = options.window_left.value_or(-1),
          .sizes = {.batch = prefill ? 1 : args.q.extent[0],
                    .q_len = prefill ? args.q.extent[0] : 1,
                    .kv_len = args.block_table.extent[1] * page_size,
                    .q_heads = args.q.extent[1],
                    .kv_heads = args.k_pages.extent[pool_axis(options.pool_layout, 'H')],
                    .head_dim = static_cast<std::int32_t>(args.q.extent[2]),
                    .v_head_dim = static_cast<std::int32_t>(
                        args.v_pages.extent[pool_axis(options.pool_layout, 'D')])},
          .page_size = page_size,
          .prefix_groups = options.window_left ? 0 : args.prefix_pages.extent[0]};
}

constexpr attention_demand demand_of(ragged_decode_op, const ragged_decode_args& args,
                                     const ragged_decode_options& options,
                                     bool unaligned) noexcept {
  const bool windowed = options.window_left || options.window_right;
  attention_features needed{static_cast<std::uint16_t>(attention_feature::lengths)};
  if (args.sinks.present()) needed = needed | attention_feature::sinks;
  if (options.logits_soft_cap) needed = needed | attention_feature::soft_cap;
  return {.type = args.q.type,
          .mask = windowed ? mask_mode::window : mask_mode::full,
          .features = needed,
          .aligned16 = !unaligned,
          .window_left = options.window_left.value_or(-1),
          .window_right = options.window_right.value_or(-1),
          .sizes = {.batch = args.q.extent[0],
                    .q_len = 1,
                    .kv_len = args.k.extent[1],
                    .q_heads = args.q.extent[1],
                    .kv_heads = args.k.extent[2],
                    .head_dim = static_cast<std::int32_t>(args.q.extent[2]),
                    .v_head_dim = static_cast<std::int32_t>(args.v.extent[3])}};
}

/// A batch of sequences with keys in pages. `pool`: its heads, head dims, type and page size, the
/// rest of which is not looked at.
template <class Args, class Options>
constexpr attention_demand demand_of_batch(const Args& args, const Options& options, bool unaligned,
                                           attention_demand pool) noexcept {
  const std::int64_t sequences = args.block_table.extent[0], rows = args.q.extent[0];
  attention_features needed = attention_feature::varlen | attention_feature::lengths;
  if (args.sinks.present()) needed = needed | attention_feature::sinks;
  if (options.logits_soft_cap) needed = needed | attention_feature::soft_cap;
  pool.type = args.q.type;
  pool.mask = options.window_left ? mask_mode::window : mask_mode::causal;
  pool.features = needed | pool.features;
  pool.causal = true;
  pool.aligned16 = !unaligned;
  pool.window_left = options.window_left.value_or(-1);
  pool.sizes.batch = sequences;
  pool.sizes.q_len = sequences > 0 ? (rows + sequences - 1) / sequences : 0;
  pool.sizes.kv_len = args.block_table.extent[1] * pool.page_size;
  pool.sizes.q_heads = args.q.extent[1];
  pool.sizes.head_dim = static_cast<std::int32_t>(args.q.extent[2]);
  return pool;
}

constexpr attention_demand demand_of(unified_op, const unified_attention_args& args,
                                     const unified_attention_options& options,
                                     bool unaligned) noexcept {
  const auto axis = [&](char letter) { return pool_axis(options.pool_layout, letter); };
  attention_demand pool{.pool_type = other_type(args.k_pages, args.q),
                        .page_size = page_tokens(args.k_pages, options)};
  if (args.alibi_slopes.present() || args.qq_bias.present()) {
    pool.features = pool.features | attention_feature::bias;
  } else if (!options.window_left) {
    pool.prefix_groups = args.prefix_pages.extent[0];
  }
  pool.sizes.kv_heads = args.k_pages.extent[axis('H')];
  pool.sizes.v_head_dim = static_cast<std::int32_t>(args.v_pages.extent[axis('D')]);
  return demand_of_batch(args, options, unaligned, pool);
}

constexpr attention_demand demand_of(ragged_page_op, const ragged_page_args& args,
                                     const ragged_page_options& options, bool unaligned) noexcept {
  attention_demand pool{.pool_type = other_type(args.kv_pages, args.q),
                        .page_size = args.kv_pages.extent[1]};
  const bool writes = args.k_new.present();
  pool.sizes.kv_heads = writes ? args.k_new.extent[1] : args.kv_pages.extent[2] / 2;
  pool.sizes.v_head_dim = static_cast<std::int32_t>(args.q.extent[2]);
  if (!options.window_left) pool.prefix_groups = args.prefix_pages.extent[0];
  return demand_of_batch(args, options, unaligned, pool);
}

/// One entry. Packed sequences, whose mean lengths depend on the others, count as one token each
/// against 2048 keys if that is what they are on average, else as 512 tokens.
constexpr attention_demand without_batch(attention_demand demand) noexcept {
  demand.sizes.batch = 1;
  demand.prefix_groups = attention_demand::alone;
  if (demand.features.has(attention_feature::varlen)) {
    demand.sizes.q_len = demand.sizes.q_len > 1 ? 512 : 1;
    demand.sizes.kv_len = demand.sizes.q_len > 1 ? 512 : 2048;
  }
  return demand;
}

/// Names of `all_attention_features`, in its order: bit i of a set is the i-th.
inline constexpr std::array<std::string_view, all_attention_features.size()>
    attention_feature_names{"varlen", "lengths", "sinks",    "unnormalized", "soft_cap",
                            "bias",   "mask",    "segments", "dropout",      "weights"};
inline constexpr std::array<std::string_view, 3> mask_mode_names{"full", "causal", "window"};
inline constexpr std::array<std::string_view, 2> attention_phase_names{"prefill", "decode"};
inline constexpr std::array<std::string_view, 3> key_storage_names{"contiguous", "paged", "coded"};

constexpr std::string_view name_of(mask_mode mask) noexcept {
  return mask_mode_names[static_cast<std::size_t>(mask)];
}
constexpr std::string_view name_of(key_storage keys) noexcept {
  return key_storage_names[static_cast<std::size_t>(keys)];
}

namespace attention_fields {

template <auto Member>
std::int64_t size(const demand& from) noexcept {
  return static_cast<std::int64_t>(from.as<attention_demand>().sizes.*Member);
}
template <auto Member>
std::int64_t value(const demand& from) noexcept {
  return static_cast<std::int64_t>(from.as<attention_demand>().*Member);
}
inline std::int64_t group(const demand& from) noexcept {
  const attention_sizes& sizes = from.as<attention_demand>().sizes;
  return sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0;
}
inline std::int64_t batch_heads(const demand& from) noexcept {
  const attention_sizes& sizes = from.as<attention_demand>().sizes;
  return sizes.batch * sizes.kv_heads;
}
/// Keys that a row can see at most because of a window bounded on both sides, at least 2; 0: all.
inline std::int64_t window(const demand& from) noexcept {
  const attention_demand& asked = from.as<attention_demand>();
  if (asked.window_left < 0 || (asked.window_right < 0 && !asked.causal)) return 0;
  const std::int64_t right = asked.causal ? 0 : asked.window_right;
  const std::int64_t left = std::min<std::int64_t>(asked.window_left, INT32_MAX);
  return std::max<std::int64_t>(left + std::min<std::int64_t>(right, INT32_MAX) + 1, 2);
}

inline constexpr std::array table{
    demand_field{"type", key_part::identity, &value<&attention_demand::type>, dtype_names},
    demand_field{"mask", key_part::identity, &value<&attention_demand::mask>, mask_mode_names},
    demand_field{
        "features", key_part::identity,
        [](const demand& from) { return std::int64_t{from.as<attention_demand>().features.bits}; },
        attention_feature_names, true},
    demand_field{"head_dim", key_part::identity, &size<&attention_sizes::head_dim>},
    demand_field{"v_head_dim", key_part::identity, &size<&attention_sizes::v_head_dim>},
    demand_field{"group", key_part::identity, &group},
    demand_field{.name = "aligned16",
                 .part = key_part::identity,
                 .value = &value<&attention_demand::aligned16>,
                 .words = words_of_flags,
                 .usual = 1},
    demand_field{.name = "page_size",
                 .part = key_part::identity,
                 .value = &value<&attention_demand::page_size>,
                 .usual = 0},
    demand_field{.name = "pool_type",
                 .part = key_part::identity,
                 .value = &value<&attention_demand::pool_type>,
                 .words = dtype_names,
                 .usual = 0},
    demand_field{.name = "shares_pages",
                 .part = key_part::identity,
                 .value =
                     [](const demand& from) {
                       return std::int64_t{from.as<attention_demand>().prefix_groups > 0};
                     },
                 .words = words_of_flags,
                 .usual = 0},
    // A single row is another loop: near sizes must not cross over to it.
    demand_field{"phase", key_part::identity,
                 [](const demand& from) {
                   return std::int64_t{from.as<attention_demand>().sizes.q_len < 2};
                 },
                 attention_phase_names},
    demand_field{"q_len", key_part::size, &size<&attention_sizes::q_len>},
    demand_field{"kv_len", key_part::size, &size<&attention_sizes::kv_len>},
    demand_field{"batch_heads", key_part::size, &batch_heads},
    demand_field{"window", key_part::size_or_none, &window},
    demand_field{"batch", key_part::none, &size<&attention_sizes::batch>},
    demand_field{"q_heads", key_part::none, &size<&attention_sizes::q_heads>},
    demand_field{"kv_heads", key_part::none, &size<&attention_sizes::kv_heads>},
    demand_field{"causal", key_part::none, &value<&attention_demand::causal>, words_of_flags},
    demand_field{"top_left", key_part::none, &value<&attention_demand::top_left>, words_of_flags},
    demand_field{"window_left", key_part::none, &value<&attention_demand::window_left>},
    demand_field{"window_right", key_part::none, &value<&attention_demand::window_right>},
};

}  // namespace attention_fields
}  // namespace tessera
