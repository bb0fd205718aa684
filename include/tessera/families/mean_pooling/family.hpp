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
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

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

  /// "forward, 32 MiB, 8 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const mean_pooling_config& config,
                                             const mean_pooling_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    return sentence(
        {enumerator_name(config.pass), ", ", static_cast<std::int64_t>(facts.bytes / 1024),
         " KiB, ", items, " work item", items == 1 ? "" : "s", " for ", threads,
         is_cuda(config.target) ? " multiprocessor" : " thread", threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const mean_pooling_demand& demand,
                                              const device_facts& device,
                                              const mean_pooling_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    mean_pooling_config wanted{.target = device.highest, .type = demand.type, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) wanted.target = backend::cuda_sm80;
    return std::string(name_of(resolved(wanted)).view());
  }
};

}  // namespace tessera
