// The family of quantised weights as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/quantized/cost.hpp>
#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/families/quantized/fits.hpp>
#include <tessera/families/quantized/reflect.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct quantized_family {
  using config_type = quantized_config;
  using demand_type = quantized_demand;
  using facts_type = quantized_facts;

  static constexpr std::string_view name = "quantized";
  static constexpr int number = 10;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = quantized_operations;
  static constexpr std::span<const demand_field> fields = quantized_fields::table;

  /// "dequantize, mxfp4, 4096 x 4096 weights, 1024 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const quantized_config& config,
                                             const quantized_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({name_of(config.pass), ", ", name_in(weight_mode_names, facts.demand.mode),
                     ", ", facts.demand.rows, " x ", facts.demand.columns, " weights, ", items,
                     " work item", items == 1 ? "" : "s", " for ", threads, worker,
                     threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const quantized_demand& demand,
                                              const device_facts& device, const quantized_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    quantized_config wanted{.target = device.highest, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) {
      if (is_product(wanted.pass)) wanted.type = demand.type;
      if (broken_rule(wanted) != quantized_rule::none) wanted.target = backend::cuda_sm80;
    }
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
