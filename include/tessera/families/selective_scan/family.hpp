// The family of elementwise recurrences as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/selective_scan/cost.hpp>
#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/families/selective_scan/fits.hpp>
#include <tessera/families/selective_scan/reflect.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

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

  /// "state_space_v1 forward, 2048 tokens, 24 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const selective_scan_config& config,
                                             const selective_scan_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({name_of(config.recurrence), " ", name_of(config.pass), ", ",
                     facts.demand.tokens, " tokens, ", items, " work item", items == 1 ? "" : "s",
                     " for ", threads, worker, threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const selective_scan_demand& demand,
                                              const device_facts& device,
                                              const selective_scan_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    selective_scan_config wanted{
        .target = device.highest, .recurrence = demand.recurrence, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) wanted.target = backend::cuda_sm80;
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
