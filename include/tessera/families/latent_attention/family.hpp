// The family of latent attention as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/latent_attention/cost.hpp>
#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/families/latent_attention/fits.hpp>
#include <tessera/families/latent_attention/reflect.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct latent_attention_family {
  using config_type = latent_attention_config;
  using demand_type = latent_attention_demand;
  using facts_type = latent_attention_facts;

  static constexpr std::string_view name = "latent_attention";
  static constexpr int number = 8;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = latent_attention_operations;
  static constexpr std::span<const demand_field> fields = latent_attention_fields::table;

  /// "expanded forward, 2048 queries": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const latent_attention_config& config,
                                              const latent_attention_facts& facts) {
    return sentence({name_of(config.form), " ", name_of(config.pass), ", ", facts.demand.tokens,
                     facts.demand.tokens == 1 ? " query" : " queries"});
  }

  /// The row that would be made for this demand.
  static latent_attention_config wanted_config(const latent_attention_demand& demand,
                                               backend target, backend highest) noexcept {
    latent_attention_config wanted{.target = target, .form = demand.form, .pass = demand.pass};
    if (is_cuda(target)) {
      const auto serves = [&] { return is_legal(wanted) && runs(wanted, demand); };
      wanted.target = highest;
      wanted.type = demand.type;
      if (!serves()) wanted.target = target;
      if (!serves()) wanted.type = dtype::none;
    }
    return wanted;
  }
};

}  // namespace tessera
