// The mean pooling family as the chain of choosers sees it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/eligibility.hpp>
#include <tessera/families/mean_pooling/instance.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/memory.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Types, eligibility, cost, words and execution; see `selectable_family`, `executable_family`.
struct mean_pooling_family {
  using problem_type = mean_pooling_problem;
  using config_type = mean_pooling_config;
  using instance_type = mean_pooling_instance;
  using demand_type = mean_pooling_demand;
  using key_type = mean_pooling_key;
  using args_type = mean_pooling_args;
  using kernel_args_type = mean_pooling_kernel_args;
  /// Runs are validated like calls: there are few tensors.
  struct planned_type {};

  /// Sizes that every row's estimate starts from.
  struct facts_type {
    mean_pooling_demand demand{};
    double elements = 0;  ///< of the tokens
    double bytes = 0;     ///< of tokens and means
  };

  static constexpr std::string_view name = "mean_pooling";
  static constexpr int semantic_version = 1;
  /// What decides is whether the tokens are in a cache: a doubling off is the same answer.
  static constexpr double max_log2_distance = 1;
  static constexpr const std::array<std::string_view, 4>& ops = mean_pooling_ops;
  /// Every field of the problem and of its options; see key_class.
  static constexpr std::array field_classes{
      field_class{"op", key_class::identity},
      field_class{"x", key_class::identity_and_size},
      field_class{"mask", key_class::identity},
      field_class{"cu_seqlens", key_class::identity_and_size},  // the number of sequences
      field_class{"chunk_size", key_class::size},
  };

  static std::span<const mean_pooling_instance> registry() noexcept {
    return mean_pooling_registry();
  }
  static std::string_view code_version(device_kind kind) noexcept {
    return mean_pooling_code_version(kind);
  }

  static std::string_view op_of(const mean_pooling_problem& problem) noexcept {
    return name_of(problem.op);
  }
  static constexpr mean_pooling_demand demand_of(const mean_pooling_problem& problem) noexcept {
    return tessera::demand_of(problem);
  }
  static constexpr std::uint64_t hash_of(const mean_pooling_demand& demand) noexcept;
  /// One sequence of 512 tokens: neither the others nor the lengths that depend on them count.
  static constexpr mean_pooling_demand without_batch(mean_pooling_demand demand) noexcept {
    demand.sizes.tokens = demand.packed ? 512 : tokens_of_one(demand);
    demand.sizes.sequences = 1;
    return demand;
  }
  static constexpr mean_pooling_key key_of(const mean_pooling_demand& demand) noexcept {
    return tessera::key_of(demand);
  }
  static std::size_t identity_text(const mean_pooling_key& key, char* to,
                                   std::size_t room) noexcept;
  static std::size_t size_text(const mean_pooling_key& key, char* to, std::size_t room) noexcept;
  static std::span<const std::string_view> fields();
  static std::optional<field_value> field_of(const mean_pooling_demand& demand,
                                             std::string_view field);

  static constexpr bool runs(const mean_pooling_config& config,
                             const mean_pooling_demand& demand) noexcept {
    return mismatch_of(config, demand) == mean_pooling_mismatch::none;
  }
  static std::string difference(const mean_pooling_config& config,
                                const mean_pooling_demand& demand) {
    return sentence_of(mismatch_of(config, demand), config, demand);
  }
  static constexpr bool runs_on(const mean_pooling_config& config,
                                const device_facts& device) noexcept {
    return device.runs(config.target);
  }
  static std::string missing_on(const mean_pooling_config& config, const device_facts& device) {
    return missing_backend(config.target, device);
  }
  /// How far a row is from running the problem; 0: it does.
  static constexpr int distance(const mean_pooling_config& config,
                                const mean_pooling_demand& demand) noexcept {
    return (config.pass != demand.pass ? 2 : 0) + (config.type != demand.type ? 1 : 0);
  }
  /// No row is a last resort: all of them take every size.
  static constexpr bool is_generic(const mean_pooling_config&) noexcept { return false; }

  static facts_type facts_of(const mean_pooling_demand& demand) noexcept;
  static work_estimate estimate(const mean_pooling_config& config, const facts_type& facts,
                                int threads) noexcept;

  /// "forward, 32 MiB, 8 work items for 2 threads".
  static std::string reason_of(const mean_pooling_config& config, const facts_type& facts,
                               int threads);
  /// Problem text; see families/mean_pooling/problem_text.hpp.
  static std::string text_of(const mean_pooling_problem& problem);
  static result<mean_pooling_problem> parse(std::string_view line);
  /// The name of the row that would be made for this problem on this device.
  static std::string wanted_row(const mean_pooling_demand& demand, const device_facts& device,
                                const mean_pooling_config& chosen);

  static status lower_problem(const mean_pooling_problem& problem,
                              mean_pooling_kernel_args& lowered);
  static planned_type plan_tensors(const mean_pooling_problem&, device_id = {}) { return {}; }
  static status lower_run(const mean_pooling_problem& problem, const planned_type& planned,
                          const mean_pooling_kernel_args& valid, const mean_pooling_args& args,
                          mean_pooling_kernel_args& lowered);
  static bool is_empty(const mean_pooling_kernel_args& args) noexcept {
    return args.heads * args.columns == 0 || (args.cu_seqlens == nullptr && args.sequences == 0);
  }
  static status finish(const mean_pooling_instance&, const mean_pooling_args&,
                       const mean_pooling_kernel_args&, const launch_context&) {
    return {};
  }

 private:
  static constexpr std::int64_t tokens_of_one(const mean_pooling_demand& demand) noexcept {
    return demand.sizes.sequences > 0 ? demand.sizes.tokens / demand.sizes.sequences : 0;
  }
};

constexpr std::uint64_t mean_pooling_family::hash_of(const mean_pooling_demand& demand) noexcept {
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  std::uint64_t hash = word(demand.type) | word(demand.pass) << 8 | word(demand.packed) << 16 |
                       word(demand.weighted) << 17;
  hash = mixed(hash, word(demand.sizes.sequences));
  hash = mixed(hash, word(demand.sizes.tokens));
  hash = mixed(hash, word(demand.sizes.columns));
  return mixed(hash, word(demand.sizes.chunk));
}

inline mean_pooling_family::facts_type mean_pooling_family::facts_of(
    const mean_pooling_demand& demand) noexcept {
  const mean_pooling_sizes& sizes = demand.sizes;
  const double columns = static_cast<double>(sizes.columns);
  const double elements = static_cast<double>(sizes.tokens) * columns;
  const double chunks =
      sizes.chunk > 0 ? static_cast<double>(sizes.tokens) / static_cast<double>(sizes.chunk) : 0.0;
  const double means = (static_cast<double>(sizes.sequences) + chunks) * columns;
  return {.demand = demand,
          .elements = elements,
          .bytes = (elements + means) * static_cast<double>(size_of(demand.type))};
}

inline work_estimate mean_pooling_family::estimate(const mean_pooling_config& config,
                                                   const facts_type& facts,
                                                   int /*threads*/) noexcept {
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.bytes / (256 << 10)));
  if (config.pass == pooling_pass::forward) {
    // Loads, conversion, addition; the running sum is loaded and stored once for all streams, and
    // streams compete for the ways of the first-level cache. Measured on Zen 4, one core, from
    // memory: 4 streams read 82 to 85 % of what a bare loop reads, 1 and 8 streams 70 to 75 %.
    const double streams = config.streams;
    work.vector_operations = facts.elements * (3.0 + 3.0 / streams + 0.2 * streams);
    work.bytes = facts.bytes;
  } else {
    work.vector_operations = 2.0 * facts.elements;
    // An ordinary store reads what it overwrites; one past the caches goes to memory in any case.
    const bool streaming = config.stores == pooling_stores::streaming;
    (streaming ? work.streamed_bytes : work.bytes) = facts.bytes * (streaming ? 1.0 : 1.6);
  }
  return work;
}

}  // namespace tessera
