// The flash attention forward family as the chain of choosers sees it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/eligibility.hpp>
#include <tessera/families/attention/instance.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/memory.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace impl {
class planned_memory;
}

/// Types, eligibility, cost, words and execution; see `selectable_family`, `executable_family`.
struct attention_family {
  using problem_type = flash_problem;
  using config_type = attention_config;
  using instance_type = attention_instance;
  using demand_type = attention_demand;
  using key_type = attention_key;
  using args_type = flash_attention_args;
  using kernel_args_type = attention_kernel_args;
  using planned_type = impl::planned_memory;

  /// Sizes that every row's estimate starts from.
  struct facts_type {
    attention_demand demand{};
    double rows = 0;          ///< query rows per key/value head: the heads of a group are rows
    double heads = 0;         ///< batch entries times key/value heads
    double visible_keys = 0;  ///< mean over rows
  };

  static constexpr std::string_view name = "attention";
  static constexpr int semantic_version = 1;
  /// One size may be a doubling off: beyond, which tile wins changes more often than it stays.
  static constexpr double max_log2_distance = 1;
  static constexpr std::array ops{name_of(flash_op::flash_attention), name_of(flash_op::attention),
                                  name_of(flash_op::scaled_dot_product_attention)};
  /// Every field of the problem and of its options; see key_class. Scales, caps and seeds are
  /// scalars of a launch: whether a cap or dropout is there at all is a feature.
  static constexpr std::array field_classes{
      field_class{"op", key_class::ignored},
      field_class{"q", key_class::identity_and_size},
      field_class{"k", key_class::identity_and_size},
      field_class{"v", key_class::identity_and_size},
      field_class{"bias_pre", key_class::identity},
      field_class{"bias_post", key_class::identity},
      field_class{"mask", key_class::identity},
      field_class{"q_segment_ids", key_class::identity},
      field_class{"kv_segment_ids", key_class::ignored},  // only with q_segment_ids
      field_class{"sinks", key_class::identity},
      field_class{"cu_seqlens_q", key_class::identity_and_size},  // the number of sequences
      field_class{"cu_seqlens_k", key_class::ignored},            // only with cu_seqlens_q
      field_class{"seqlens_q", key_class::identity},
      field_class{"seqlens_k", key_class::identity},
      field_class{"weights", key_class::identity},
      field_class{"unaligned", key_class::identity},
      field_class{"softmax_scale", key_class::ignored},
      field_class{"causal", key_class::identity},
      field_class{"causal_alignment", key_class::ignored},
      field_class{"window_left", key_class::identity_and_size},
      field_class{"window_right", key_class::identity_and_size},
      field_class{"logits_soft_cap", key_class::identity},
      field_class{"dropout_probability", key_class::identity},
      field_class{"dropout_seed", key_class::ignored},
      field_class{"normalize", key_class::identity},
  };

  static std::span<const attention_instance> registry() noexcept { return attention_registry(); }
  static std::string_view code_version(device_kind kind) noexcept {
    return attention_code_version(kind);
  }

  static std::string_view op_of(const flash_problem& problem) noexcept {
    return name_of(problem.op);
  }
  static constexpr attention_demand demand_of(const flash_problem& problem) noexcept {
    return tessera::demand_of(problem);
  }
  static constexpr std::uint64_t hash_of(const attention_demand& demand) noexcept;
  /// One entry. Packed sequences, whose mean lengths depend on the others, count as one token each
  /// against 2048 keys if that is what they are on average, else as 512 tokens.
  static constexpr attention_demand without_batch(attention_demand demand) noexcept;
  static constexpr attention_key key_of(const attention_demand& demand) noexcept {
    return tessera::key_of(demand);
  }
  static std::size_t identity_text(const attention_key& key, char* to, std::size_t room) noexcept;
  static std::size_t size_text(const attention_key& key, char* to, std::size_t room) noexcept;
  static std::span<const std::string_view> fields();
  static std::optional<field_value> field_of(const attention_demand& demand,
                                             std::string_view field);

  static constexpr bool runs(const attention_config& config,
                             const attention_demand& demand) noexcept {
    return mismatch_of(config, demand) == attention_mismatch::none;
  }
  static std::string difference(const attention_config& config, const attention_demand& demand) {
    return sentence_of(mismatch_of(config, demand), config, demand);
  }
  static constexpr bool runs_on(const attention_config& config,
                                const device_facts& device) noexcept {
    return device.runs(config.target) &&
           (is_cpu(config.target) || shared_memory_bytes(config) <= device.shared_bytes_per_block);
  }
  static std::string missing_on(const attention_config& config, const device_facts& device);
  /// How far a row is from running the problem; 0: it does.
  static constexpr int distance(const attention_config& config,
                                const attention_demand& demand) noexcept {
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
    differs(!runs(nearer, demand), 1);
    return differences;
  }
  /// True for rows that take head dims as they come: the last resort of a backend.
  static constexpr bool is_generic(const attention_config& config) noexcept {
    return config.head_dim == 0;
  }

  static facts_type facts_of(const attention_demand& demand) noexcept;
  /// `threads`: of a GPU, the number of its multiprocessors.
  static work_estimate estimate(const attention_config& config, const facts_type& facts,
                                int threads) noexcept;

  /// "decode, 8 work items for 2 threads".
  static std::string reason_of(const attention_config& config, const facts_type& facts,
                               int threads);
  /// Problem text; see families/attention/problem_text.hpp.
  static std::string text_of(const flash_problem& problem);
  static result<flash_problem> parse(std::string_view line);
  /// The name of the row that would be made for this problem on this device: what to add to the
  /// row list. `chosen` is the generic row that runs instead.
  static std::string wanted_row(const attention_demand& demand, const device_facts& device,
                                const attention_config& chosen);

  static status lower_problem(const flash_problem& problem, attention_kernel_args& lowered);
  static planned_type plan_tensors(const flash_problem& problem, device_id device = {});
  static status lower_run(const flash_problem& problem, const planned_type& planned,
                          const attention_kernel_args& valid, const flash_attention_args& args,
                          attention_kernel_args& lowered);
  static bool is_empty(const attention_kernel_args& args) noexcept {
    return args.q_len == 0 || (args.cu_seqlens_q == nullptr && args.batch == 0);
  }
  static status finish(const attention_instance& row, const flash_attention_args& args,
                       const attention_kernel_args& lowered, const launch_context& where);
};

constexpr std::uint64_t attention_family::hash_of(const attention_demand& demand) noexcept {
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  const attention_sizes& sizes = demand.sizes;
  return hash_of_words(word(demand.type) | word(demand.mask) << 8 |
                           word(demand.features.bits) << 16 | word(demand.causal) << 32 |
                           word(demand.top_left) << 33 | word(demand.aligned16) << 34,
                       word(demand.window_left), word(demand.window_right), word(sizes.batch),
                       word(sizes.q_len), word(sizes.kv_len), word(sizes.q_heads),
                       word(sizes.kv_heads), word(sizes.head_dim) << 32 ^ word(sizes.v_head_dim));
}

constexpr attention_demand attention_family::without_batch(attention_demand demand) noexcept {
  demand.sizes.batch = 1;
  if (demand.features.has(attention_feature::varlen)) {
    demand.sizes.q_len = demand.sizes.q_len > 1 ? 512 : 1;
    demand.sizes.kv_len = demand.sizes.q_len > 1 ? 512 : 2048;
  }
  return demand;
}

/// Mean number of keys that a row sees.
constexpr double mean_visible_keys(const attention_demand& demand) noexcept {
  const attention_sizes& sizes = demand.sizes;
  const auto bound = [](std::int64_t window) { return window >= 0 ? window : unbounded; };
  const prim::mask_interval mask{demand.causal, bound(demand.window_left),
                                 bound(demand.window_right),
                                 demand.top_left ? 0 : sizes.kv_len - sizes.q_len};
  return mask.mean_keys(sizes.q_len, sizes.kv_len);
}

inline attention_family::facts_type attention_family::facts_of(
    const attention_demand& demand) noexcept {
  const attention_sizes& sizes = demand.sizes;
  const auto group = sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0;
  return {.demand = demand,
          .rows = static_cast<double>(sizes.q_len) * static_cast<double>(group),
          .heads = static_cast<double>(sizes.batch) * static_cast<double>(sizes.kv_heads),
          .visible_keys = mean_visible_keys(demand)};
}

/// What a CUDA row does: blocks of block_q rows, each against the keys that some of them see.
inline work_estimate estimate_on_gpu(const attention_config& config,
                                     const attention_family::facts_type& facts) noexcept {
  const attention_sizes& sizes = facts.demand.sizes;
  const bool any_head_dim = config.head_dim == 0;
  const bool decode = config.phase == attention_phase::decode;
  const auto pieces = [](double size, double step) {
    return std::max(1.0, static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)));
  };
  // Rows for any head dim are compiled for three widths, the others in steps of 16.
  const auto width = [&](int head_dim) {
    const int wider = std::max(sizes.head_dim, sizes.v_head_dim);
    if (any_head_dim) return wider <= 64 ? 64 : wider <= 128 ? 128 : 256;
    return (head_dim + 15) / 16 * 16;
  };
  const double head_dims = width(sizes.head_dim) + width(sizes.v_head_dim);
  const double blocks = pieces(facts.rows, config.block_q);
  const auto group = static_cast<double>(
      std::max<std::int64_t>(1, sizes.q_heads / std::max<std::int64_t>(1, sizes.kv_heads)));
  // The rows of a block do not all see the same keys.
  const double spread = facts.demand.mask == mask_mode::full ? 0.0 : config.block_q / group;
  const double seen = std::min(static_cast<double>(sizes.kv_len), facts.visible_keys + spread / 2);
  const double tiles = pieces(seen, config.block_kv);
  const double scores = facts.heads * blocks * config.block_q * tiles * config.block_kv;

  work_estimate work;
  work.flops = 2 * scores * head_dims;
  // Parts of the rate of mma.sync with 16-bit elements as measured on an H200 (bench/results). A
  // multiprocessor gets as much from each warp of 16 rows; f32 is three products of tf32 at half
  // the rate.
  const int decode_warps = std::max(1, config.tiling.blocks_per_sm * config.tiling.warps);
  work.product_share = decode ? std::min(0.06 * decode_warps, 0.6) : head_dims > 256 ? 0.6 : 0.7;
  if (config.type == dtype::f32) work.product_share *= 1.0 / 6;
  if (any_head_dim) work.product_share *= decode ? 0.8 : 0.65;
  const int idle_features =
      std::popcount(config.features.without(facts.demand.features | base_features).bits);
  work.vector_operations = 4.0 * idle_features * scores;
  // Keys and values come from memory once and from the L2 cache for every further block of rows,
  // which costs a third.
  const auto element = static_cast<double>(size_of(config.type));
  const double of_token = element * (sizes.head_dim + sizes.v_head_dim);
  work.bytes = facts.heads * of_token * (seen * (1 + 0.3 * (blocks - 1)) + facts.rows);
  work.items = static_cast<std::int64_t>(facts.heads * blocks);
  work.items_per_core = std::max(1, config.tiling.blocks_per_sm);
  work.most_splits = std::clamp<std::int64_t>(static_cast<std::int64_t>(tiles / 2), 1, 128);
  return work;
}

inline work_estimate attention_family::estimate(const attention_config& config,
                                                const facts_type& facts, int threads) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const attention_sizes& sizes = facts.demand.sizes;
  const bool decode = config.phase == attention_phase::decode;
  const auto up = [](double size, double step) {
    return static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)) * step;
  };
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

  // What the kernel will hand out.
  const auto sized =
      schedule_cpu::sizes_of(sizes, facts.demand.features.has(attention_feature::varlen));
  const double key_bytes = head_dims * static_cast<double>(size_of(config.type));
  if (decode) {
    const auto cut = schedule_cpu::decode_schedule::of(config, sized, threads);
    const auto blocks = static_cast<double>(std::max<std::int64_t>(1, cut.blocks(sized.q_len)));
    // No packing and no register tile. Measured on Zen 4: 1.4 operations per lane and cycle, 2.2
    // with VDPBF16PS, whatever the peak; portable rows are taken to reach half of that.
    const double per_lane = config.target == backend::cpu_avx512_bf16 ? 2.2
                            : config.target == backend::cpu_generic   ? 0.7
                                                                      : 1.4;
    work.most_products = per_lane * vector_floats(config.target);
    work.bytes = facts.heads * blocks * keys * key_bytes;
    work.items = std::max<std::int64_t>(1, cut.items(sized.q_len));
  } else {
    const auto cut = schedule_cpu::prefill_schedule::of(config, sized, threads);
    const auto blocks = static_cast<double>(std::max<std::int64_t>(1, cut.blocks(sized.q_len)));
    // Each block of rows packs the keys it sees: about two operations per element. The panels are
    // floats and pass through the same caches as the keys.
    // Shares of the peak that rank prefill against decode rows as measured on Zen 4, where a few
    // rows of queries wait for keys to be packed.
    work.product_share = vector_floats(config.target) >= 16 ? 0.75 : 0.55;
    work.bytes = facts.heads * keys * (key_bytes + 4.0 * head_dims);
    work.vector_operations += 2.0 * facts.heads * blocks * keys * head_dims;
    work.items = std::max<std::int64_t>(1, cut.items(sized.q_len));
    work.tile_bytes = static_cast<double>(cut.tile_bytes(config, sizes.head_dim, sizes.v_head_dim));
  }
  if (is_generic(config)) {  // loop bounds are not constants
    work.product_share *= 0.85;
    work.most_products *= 0.85;
  }
  return work;
}

}  // namespace tessera
