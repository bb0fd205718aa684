// The family of fused losses as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/losses/cost.hpp>
#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/fits.hpp>
#include <tessera/families/losses/reflect.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

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

  /// "cross_entropy forward, 2048 tokens of 32000 classes, 2048 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const losses_config& config, const losses_facts& facts,
                                             int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({name_of(config.loss), " ", name_of(config.pass), ", ", facts.demand.rows,
                     " tokens of ", facts.demand.classes, " classes, ", items, " work item",
                     items == 1 ? "" : "s", " for ", threads, worker, threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const losses_demand& demand,
                                              const device_facts& device, const losses_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    losses_config wanted{.target = device.highest, .loss = demand.loss, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) {
      wanted.target = backend::cuda_sm80;
      if (wanted.loss == loss_kind::linear_cross_entropy) wanted.type = demand.type;
      if (broken_rule(wanted) != losses_rule::none) wanted.type = dtype::f32;
    }
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
