// The family of grouped matrix products as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/grouped_matmul/cost.hpp>
#include <tessera/families/grouped_matmul/declaration.hpp>
#include <tessera/families/grouped_matmul/demand.hpp>
#include <tessera/families/grouped_matmul/fits.hpp>
#include <tessera/families/grouped_matmul/reflect.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct grouped_matmul_family {
  using config_type = grouped_matmul_config;
  using demand_type = grouped_matmul_demand;
  using facts_type = grouped_matmul_facts;

  static constexpr std::string_view name = "grouped_matmul";
  static constexpr int number = 11;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = grouped_matmul_table::operations;
  static constexpr std::span<const demand_field> fields = grouped_matmul_fields::table;

  /// "512 rows in 8 groups, 64 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const grouped_matmul_config& config,
                                             const grouped_matmul_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    return sentence({facts.demand.m, " rows in ", facts.demand.groups,
                     facts.demand.groups == 1 ? " group, " : " groups, ", items, " work item",
                     items == 1 ? "" : "s", " for ", threads,
                     is_cuda(config.target) ? " multiprocessor" : " thread",
                     threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const grouped_matmul_demand& demand,
                                              const device_facts& device,
                                              const grouped_matmul_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    grouped_matmul_config wanted{.target = device.highest};
    if (is_cuda(wanted.target)) {
      wanted.type = demand.is_of(demand.type) ? demand.type : dtype::f32;
      const bool panels = demand.aligned && wanted.type == demand.rhs_type;
      if (wanted.type == dtype::f32 || !panels) wanted.target = backend::cuda_sm80;
    }
    if (has_bf16_products(wanted.target)) {
      wanted.target = demand.is_bf16() ? backend::cpu_avx512_bf16 : backend::cpu_avx512;
    }
    return std::string(tessera::name_of(resolved(wanted)).view());
  }
};

}  // namespace tessera
