// The family of caches of keys and values as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/kv_cache/cost.hpp>
#include <tessera/families/kv_cache/declaration.hpp>
#include <tessera/families/kv_cache/demand.hpp>
#include <tessera/families/kv_cache/fits.hpp>
#include <tessera/families/kv_cache/reflect.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct kv_cache_family {
  using config_type = kv_cache_config;
  using demand_type = kv_cache_demand;
  using facts_type = kv_cache_facts;

  static constexpr std::string_view name = "kv_cache";
  static constexpr int number = 4;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = kv_cache_table::operations;
  static constexpr std::span<const demand_field> fields = kv_cache_fields::table;

  /// "append, 32 KiB, 8 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const kv_cache_config& config,
                                             const kv_cache_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    return sentence({name_of(config.pass), ", ", static_cast<std::int64_t>(facts.bytes / 1024),
                     " KiB, ", items, " work item", items == 1 ? "" : "s", " for ", threads,
                     is_cuda(config.target) ? " multiprocessor" : " thread",
                     threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const kv_cache_demand& demand,
                                              const device_facts& device, const kv_cache_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    kv_cache_config wanted{.target = device.highest, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (broken_table_rule(wanted) != kv_cache_rule::none) wanted.target = backend::cpu_generic;
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
