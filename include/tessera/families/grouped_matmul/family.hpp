// The family of grouped matrix products as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/grouped_matmul/cost.hpp>
#include <tessera/families/grouped_matmul/demand.hpp>
#include <tessera/families/grouped_matmul/fits.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/families/grouped_matmul/reflect.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct grouped_matmul_family {
  using config_type = grouped_matmul_config;
  using demand_type = grouped_matmul_demand;
  using facts_type = grouped_matmul_facts;

  static constexpr std::string_view name = "grouped_matmul";
  static constexpr int number = 11;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = grouped_matmul_operations;
  static constexpr std::span<const demand_field> fields = grouped_matmul_fields::table;

  /// "512 rows in 8 groups": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const grouped_matmul_config&,
                                              const grouped_matmul_facts& facts) {
    return sentence({facts.demand.m, " rows in ", facts.demand.groups,
                     facts.demand.groups == 1 ? " group" : " groups"});
  }

  /// The row that would be made for this demand.
  static grouped_matmul_config wanted_config(const grouped_matmul_demand& demand, backend target,
                                             backend highest) noexcept {
    grouped_matmul_config wanted{.target = target};
    if (is_cuda(target) && demand.has_codes()) {
      // Rows of f8_e5m2 multiply it and f8_e4m3 in either order.
      const bool rhs_is_e5m2 = demand.rhs_type == dtype::f8_e5m2;
      wanted.type = rhs_is_e5m2 ? demand.rhs_type : demand.type;
      wanted.target = highest;
    } else if (is_cuda(target)) {
      wanted.type = demand.is_of(demand.type) ? demand.type : dtype::f32;
      const bool panels = demand.aligned && wanted.type == demand.rhs_type;
      if (wanted.type != dtype::f32 && panels) wanted.target = highest;
    }
    const bool bytes = demand.has_codes() && demand.type == dtype::i8;
    if (has_byte_products(highest) && bytes) wanted.target = backend::cpu_avx512_vnni;
    if (has_bf16_products(highest) && demand.is_bf16()) wanted.target = backend::cpu_avx512_bf16;
    if (has_tile_products(highest) && (bytes || demand.is_bf16())) {
      wanted.target = highest;
      wanted.type = demand.type;
    }
    return wanted;
  }
};

}  // namespace tessera
