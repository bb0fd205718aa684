// The mean pooling family as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/cost.hpp>
#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/fits.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct mean_pooling_family {
  using config_type = mean_pooling_config;
  using demand_type = mean_pooling_demand;
  using facts_type = mean_pooling_facts;

  static constexpr std::string_view name = "mean_pooling";
  static constexpr int number = 2;
  static constexpr int semantic_version = 1;
  /// What decides is whether the tokens are in a cache: a doubling off is the same answer.
  static constexpr double max_log2_distance = 1;
  static constexpr std::span<const operation> operations = mean_pooling_table::operations;
  static constexpr std::span<const demand_field> fields = mean_pooling_fields::table;

  /// "forward, 32768 KiB": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const mean_pooling_config& config,
                                              const mean_pooling_facts& facts) {
    return sentence(
        {name_of(config.pass), ", ", static_cast<std::int64_t>(facts.bytes / 1024), " KiB"});
  }

  /// The row that would be made for this demand.
  static mean_pooling_config wanted_config(const mean_pooling_demand& demand, backend target,
                                           backend /*highest*/) noexcept {
    return {.target = target, .type = demand.type, .pass = demand.pass};
  }
};

}  // namespace tessera
