// The delta rule family as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/delta_rule/cost.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/delta_rule/fits.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/families/delta_rule/reflect.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct delta_rule_family {
  using config_type = delta_rule_config;
  using demand_type = delta_rule_demand;
  using facts_type = delta_rule_facts;

  static constexpr std::string_view name = "delta_rule";
  static constexpr int number = 6;
  static constexpr int semantic_version = 1;
  /// The order of rows changes with the head dims, which are part of the identity.
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = delta_rule_operations;
  static constexpr std::span<const demand_field> fields = delta_rule_fields::table;

  /// "forward, states of 128 x 64, 32 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const delta_rule_config& config,
                                             const delta_rule_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({name_of(config.pass), ", states of ", facts.demand.sizes.key_dim, " x ",
                     facts.demand.sizes.value_dim, ", ", items, " work item", items == 1 ? "" : "s",
                     " for ", threads, worker, threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const delta_rule_demand& demand,
                                              const device_facts& device,
                                              const delta_rule_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    delta_rule_config wanted{.target = device.highest, .type = demand.type, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) {
      wanted.target = backend::cuda_sm80;
      wanted.key_dim = recurrent_key_dim_for(demand.sizes.key_dim);
      const bool prompts = demand.sizes.tokens >= demand.sizes.sequences * tokens_of_chunk &&
                           demand.aligned && demand.plain &&
                           demand.decay != delta_rule_decay::channel;
      if (prompts) wanted.chunk = static_cast<int>(tokens_of_chunk);
      if (broken_rule(wanted) != delta_rule_rule::none) wanted.chunk = 0;
    }
    return std::string(tessera::name_of(resolved(wanted)).view());
  }
};

}  // namespace tessera
