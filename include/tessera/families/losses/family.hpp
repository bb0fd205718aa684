// The family of fused losses as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/losses/cost.hpp>
#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/fits.hpp>
#include <tessera/families/losses/reflect.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct losses_family {
  using config_type = losses_config;
  using demand_type = losses_demand;
  using facts_type = losses_facts;

  static constexpr std::string_view name = "losses";
  static constexpr int number = 12;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = losses_operations;
  static constexpr std::span<const demand_field> fields = losses_fields::table;

  /// "cross_entropy forward, 2048 tokens of 32000 classes": what a row does, before how the work is
  /// cut.
  [[gnu::cold]] static std::string subject_of(const losses_config& config,
                                              const losses_facts& facts) {
    return sentence({name_of(config.loss), " ", name_of(config.pass), ", ", facts.demand.rows,
                     " tokens of ", facts.demand.classes, " classes"});
  }

  /// The row that would be made for this demand.
  static losses_config wanted_config(const losses_demand& demand, backend target,
                                     backend highest) noexcept {
    losses_config wanted{.target = target, .loss = demand.loss, .pass = demand.pass};
    if (is_cuda(target)) {
      if (wanted.loss == loss_kind::linear_cross_entropy) wanted.type = demand.type;
      if (!is_legal(wanted)) wanted.type = dtype::f32;
      const bool panels = wanted.type == dtype::bf16 && demand.aligned;
      if (panels) wanted.target = highest;
    }
    return wanted;
  }
};

}  // namespace tessera
