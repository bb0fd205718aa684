// The family of the gradients of attention as the chain of choosers sees it; see
// runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/attention_backward/cost.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/attention_backward/reflect.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct attention_backward_family {
  using config_type = attention_backward_config;
  using demand_type = attention_backward_demand;
  using facts_type = attention_backward_facts;

  static constexpr std::string_view name = "attention_backward";
  static constexpr int number = 3;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 1;
  static constexpr std::span<const operation> operations = attention_backward_table::operations;
  static constexpr std::span<const demand_field> fields = attention_backward_fields::table;

  /// "gradients, 8 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const attention_backward_config& config,
                                             const attention_backward_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    return sentence({"gradients, ", items, " work item", items == 1 ? "" : "s", " for ", threads,
                     " thread", threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const attention_backward_demand& demand,
                                              const device_facts& device,
                                              const attention_backward_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    const attention_sizes& sizes = demand.scores.sizes;
    if (sizes.head_dim != sizes.v_head_dim) return {};
    attention_backward_config wanted{
        .target = device.highest, .type = demand.scores.type, .head_dim = sizes.head_dim};
    if (is_cuda(wanted.target)) {
      wanted.d_q_atomics = true;
      if (wanted.head_dim > 128) wanted.target = backend::cuda_sm80;
    }
    if (has_bf16_products(wanted.target)) {
      wanted.target = wanted.type == dtype::bf16 ? backend::cpu_avx512_bf16 : backend::cpu_avx512;
    }
    if (broken_table_rule(wanted) != attention_backward_rule::none) return {};
    return std::string(name_of(resolved(wanted)).view());
  }
};

}  // namespace tessera
