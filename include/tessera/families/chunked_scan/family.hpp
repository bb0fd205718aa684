// The family of linear attention with decay as the chain of choosers sees it; see
// runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/chunked_scan/cost.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/chunked_scan/fits.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/chunked_scan/reflect.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct chunked_scan_family {
  using config_type = chunked_scan_config;
  using demand_type = chunked_scan_demand;
  using facts_type = chunked_scan_facts;

  static constexpr std::string_view name = "chunked_scan";
  static constexpr int number = 5;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = chunked_scan_operations;
  static constexpr std::span<const demand_field> fields = chunked_scan_fields::table;

  /// "forward, step, 16 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const chunked_scan_config& config,
                                             const chunked_scan_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({enumerator_name(config.pass), ", ", enumerator_name(config.form), ", ", items,
                     " work item", items == 1 ? "" : "s", " for ", threads, worker,
                     threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const chunked_scan_demand& demand,
                                              const device_facts& device,
                                              const chunked_scan_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    chunked_scan_config wanted{.target = device.highest, .type = demand.type, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) {
      wanted.target = backend::cuda_sm80;
      wanted.key_dim = recurrent_key_dim_for(demand.keys);
      if (wanted.key_dim == 0) return {};
      const bool prompts = demand.tokens >= demand.sequences * tokens_of_chunk && demand.aligned &&
                           demand.decay != chunked_scan_decay::keys_and_values;
      wanted.form = prompts ? chunked_scan_form::chunk : chunked_scan_form::step;
      if (broken_rule(wanted) != chunked_scan_rule::none) wanted.form = chunked_scan_form::step;
    }
    return std::string(name_of(wanted).view());
  }
};

}  // namespace tessera
