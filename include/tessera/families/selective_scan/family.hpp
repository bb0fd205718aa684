// The family of elementwise recurrences as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/selective_scan/cost.hpp>
#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/families/selective_scan/fits.hpp>
#include <tessera/families/selective_scan/reflect.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct selective_scan_family {
  using config_type = selective_scan_config;
  using demand_type = selective_scan_demand;
  using facts_type = selective_scan_facts;

  static constexpr std::string_view name = "selective_scan";
  static constexpr int number = 7;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = selective_scan_operations;
  static constexpr std::span<const demand_field> fields = selective_scan_fields::table;

  /// "state_space_v1 forward, 2048 tokens": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const selective_scan_config& config,
                                              const selective_scan_facts& facts) {
    return sentence({name_of(config.recurrence), " ", name_of(config.pass), ", ",
                     facts.demand.tokens, " tokens"});
  }

  /// The row that would be made for this demand.
  static selective_scan_config wanted_config(const selective_scan_demand& demand, backend target,
                                             backend /*highest*/) noexcept {
    return {.target = target, .recurrence = demand.recurrence, .pass = demand.pass};
  }
};

}  // namespace tessera
