// The delta rule family as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/delta_rule/cost.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/delta_rule/fits.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/families/delta_rule/reflect.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/families/recurrent_fits.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/families/shared_memory.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/sentence.hpp>

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
  static_assert(say_what_is_aligned(operations));
  static constexpr std::span<const demand_field> fields = delta_rule_fields::table;

  /// "forward, states of 128 x 64": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const delta_rule_config& config,
                                              const delta_rule_facts& facts) {
    return sentence({name_of(config.pass), ", states of ", facts.demand.sizes.key_dim, " x ",
                     facts.demand.sizes.value_dim});
  }

  /// Of a device that has the row's backend.
  static constexpr bool runs_on(const delta_rule_config& config,
                                const device_facts& device) noexcept {
    return chunk_shared_bytes(config) <= device.shared_bytes_per_block;
  }
  [[gnu::cold]] static std::string missing_on(const delta_rule_config& config,
                                              const device_facts& device) {
    return missing_shared_memory(chunk_shared_bytes(config), device);
  }

  /// The row that would be made for this demand.
  static delta_rule_config wanted_config(const delta_rule_demand& demand, backend target,
                                         backend highest) noexcept {
    delta_rule_config wanted{.target = target, .type = demand.type, .pass = demand.pass};
    if (!is_cuda(target)) return wanted;
    wanted.key_dim = recurrent_key_dim_for(demand.sizes.key_dim);
    const bool prompts = demand.sizes.tokens >= demand.sizes.sequences * tokens_of_chunk;
    delta_rule_config chunks = wanted;
    if (demand.pass == delta_rule_pass::forward) chunks.target = highest;
    chunks.chunk = static_cast<int>(tokens_of_chunk);
    const bool legal = is_legal(chunks);
    return prompts && legal && runs(chunks, demand) ? chunks : wanted;
  }
};

}  // namespace tessera
