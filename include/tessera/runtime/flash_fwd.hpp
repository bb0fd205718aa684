// The flash attention forward family as the chain of choosers sees it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/flash_attention/eligibility.hpp>
#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/flash_attention/problem.hpp>

namespace tessera {

/// What `select` needs of a family: types, eligibility, cost and words.
struct flash_fwd_family {
  using problem_type = flash_problem;
  using config_type = flash_config;
  using instance_type = flash_instance;
  using demand_type = flash_demand;
  using key_type = flash_key;

  /// Sizes that every row's estimate starts from.
  struct facts_type {
    flash_demand demand{};
    double rows = 0;          ///< query rows per key/value head: the heads of a group are rows
    double heads = 0;         ///< batch entries times key/value heads
    double visible_keys = 0;  ///< mean over rows
  };

  static constexpr std::string_view name = "flash_fwd";

  static std::string_view op_of(const flash_problem& problem) noexcept {
    return name_of(problem.op);
  }
  static constexpr flash_demand demand_of(const flash_problem& problem) noexcept {
    return tessera::demand_of(problem);
  }
  static constexpr bool runs(const flash_config& config, const flash_demand& demand) noexcept {
    return mismatch_of(config, demand) == flash_mismatch::none;
  }
  static std::string difference(const flash_config& config, const flash_demand& demand) {
    return sentence_of(mismatch_of(config, demand), config, demand);
  }
  /// How far a row is from running the problem; 0: it does.
  static constexpr int distance(const flash_config& config, const flash_demand& demand) noexcept {
    flash_config nearer = config;
    int differences = 0;
    const auto differs = [&](bool condition, int weight) { differences += condition ? weight : 0; };
    differs(config.type != demand.type, 8);
    differs(config.head_dim != 0 && config.head_dim != demand.sizes.head_dim, 4);
    nearer.type = demand.type;
    nearer.head_dim = nearer.v_head_dim = 0;
    differs(mismatch_of(config, demand) == flash_mismatch::v_head_dim, 4);
    differs(config.mask < demand.mask, 2);
    nearer.mask = mask_mode::window;
    differs(!runs(nearer, demand), 1);
    return differences;
  }
  /// True for rows that take head dims as they come: the last resort of a backend.
  static constexpr bool is_generic(const flash_config& config) noexcept {
    return config.head_dim == 0;
  }

  static facts_type facts_of(const flash_demand& demand) noexcept;
  static work_estimate estimate(const flash_config& config, const facts_type& facts) noexcept;

  /// "decode, 8 work items for 2 threads".
  static std::string reason_of(const flash_config& config, const facts_type& facts, int threads);
  /// Problem text; see spec/flash_attention/problem_text.hpp.
  static std::string text_of(const flash_problem& problem);
  /// The name of the row that would be made for this problem on this device: what to add to the
  /// row list. `chosen` is the generic row that runs instead.
  static std::string wanted_row(const flash_demand& demand, const device_facts& device,
                                const flash_config& chosen);
};

/// Mean number of visible keys over at most 16 rows, evenly spread.
constexpr double mean_visible_keys(const flash_demand& demand) noexcept {
  const flash_sizes& sizes = demand.sizes;
  if (demand.mask == mask_mode::full) return static_cast<double>(sizes.kv_len);
  constexpr std::int64_t most_samples = 16;
  const std::int64_t samples = std::min(sizes.q_len, most_samples);
  const std::int64_t offset = demand.top_left ? 0 : sizes.kv_len - sizes.q_len;
  double keys = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto row = static_cast<double>(sizes.q_len) * (static_cast<double>(i) + 0.5) /
                     static_cast<double>(samples);
    const double position = row + static_cast<double>(offset);
    double end = static_cast<double>(sizes.kv_len);
    double begin = 0;
    if (demand.causal) end = std::min(end, position + 0.5);
    if (demand.window_right >= 0) {
      end = std::min(end, position + 0.5 + static_cast<double>(demand.window_right));
    }
    if (demand.window_left >= 0) {
      begin = std::max(begin, position - 0.5 - static_cast<double>(demand.window_left));
    }
    keys += std::max(0.0, end - begin);
  }
  return samples > 0 ? keys / static_cast<double>(samples) : 0.0;
}

inline flash_fwd_family::facts_type flash_fwd_family::facts_of(
    const flash_demand& demand) noexcept {
  const flash_sizes& sizes = demand.sizes;
  const auto group = sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0;
  return {.demand = demand,
          .rows = static_cast<double>(sizes.q_len) * static_cast<double>(group),
          .heads = static_cast<double>(sizes.batch) * static_cast<double>(sizes.kv_heads),
          .visible_keys = mean_visible_keys(demand)};
}

inline work_estimate flash_fwd_family::estimate(const flash_config& config,
                                                const facts_type& facts) noexcept {
  const flash_sizes& sizes = facts.demand.sizes;
  const bool decode = config.phase == flash_phase::decode;
  const auto up = [](double size, double step) {
    return static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)) * step;
  };
  const double blocks = std::max(1.0, up(facts.rows, config.block_q) / config.block_q);
  const double row_step = decode ? 1 : register_rows(config.target);
  const double key_step = decode ? vector_floats(config.target) : register_columns(config.target);
  const double rows = up(std::max(facts.rows, 1.0), row_step);
  const double keys = up(std::max(facts.visible_keys, 1.0), key_step);
  const double head_dims = sizes.head_dim + sizes.v_head_dim;

  // Elementwise: maximum, exponential (10 operations) and store per score; each feature that is
  // compiled in but not needed still tests and passes over the scores.
  const int idle_features =
      std::popcount(config.features.without(facts.demand.features | base_features).bits);
  work_estimate work;
  work.flops = 2 * facts.heads * rows * keys * head_dims;
  work.vector_operations = facts.heads * rows * keys * (14.0 + 2.0 * idle_features);

  const double key_bytes = head_dims * static_cast<double>(size_of(config.type));
  if (decode) {
    // No packing and no register tile. Measured on Zen 4: 1.2 operations per lane and cycle, 1.6
    // with VDPBF16PS, whatever the peak; portable rows are taken to reach half of that.
    const double per_lane = config.target == backend::cpu_avx512_bf16 ? 1.6
                            : config.target == backend::cpu_generic   ? 0.6
                                                                      : 1.2;
    work.product_share = per_lane * vector_floats(config.target) / flops_per_cycle(config.target);
    work.bytes = facts.heads * blocks * keys * key_bytes;
    const double splits = std::clamp(up(static_cast<double>(sizes.kv_len), 512) / 512, 1.0, 32.0);
    work.items = static_cast<std::int64_t>(std::max(1.0, facts.heads * blocks * splits));
  } else {
    // Each block of rows packs the keys it sees: about two operations per element. The panels are
    // floats and pass through the same caches as the keys.
    // Shares of the peak measured on Zen 4: 14 x 2 register tiles 0.75, 6 x 2 tiles 0.55.
    work.product_share = vector_floats(config.target) >= 16 ? 0.75 : 0.55;
    work.bytes = facts.heads * keys * (key_bytes + 4.0 * head_dims);
    work.vector_operations += 2.0 * facts.heads * blocks * keys * head_dims;
    work.items = static_cast<std::int64_t>(std::max(1.0, facts.heads * blocks));
    work.tile_bytes = 4.0 * (config.block_kv * head_dims + config.block_q * config.block_kv +
                             config.block_q * head_dims);
  }
  if (is_generic(config)) work.product_share *= 0.85;  // loop bounds are not constants
  return work;
}

}  // namespace tessera
