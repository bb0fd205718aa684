// The family of latent attention as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/latent_attention/cost.hpp>
#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/families/latent_attention/fits.hpp>
#include <tessera/families/latent_attention/reflect.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

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

  /// "expanded forward, 2048 queries, 24 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const latent_attention_config& config,
                                             const latent_attention_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    return sentence({name_of(config.form), " ", name_of(config.pass), ", ", facts.demand.tokens,
                     facts.demand.tokens == 1 ? " query, " : " queries, ", items, " work item",
                     items == 1 ? "" : "s", " for ", threads,
                     is_cuda(config.target) ? " multiprocessor" : " thread",
                     threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const latent_attention_demand& demand,
                                              const device_facts& device,
                                              const latent_attention_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    latent_attention_config wanted{
        .target = device.highest, .form = demand.form, .pass = demand.pass};
    if (is_cuda(wanted.target)) {
      const auto serves = [&] {
        return broken_rule(wanted) == latent_attention_rule::none && runs(wanted, demand);
      };
      wanted.type = demand.type;
      if (!serves()) wanted.target = backend::cuda_sm80;
      if (!serves()) wanted.type = dtype::none;
    }
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
