// The family of sparse attention as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/sparse_attention/cost.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/families/sparse_attention/fits.hpp>
#include <tessera/families/sparse_attention/reflect.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

struct sparse_attention_family {
  using config_type = sparse_attention_config;
  using demand_type = sparse_attention_demand;
  using facts_type = sparse_attention_facts;

  static constexpr std::string_view name = "sparse_attention";
  static constexpr int number = 9;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = sparse_attention_operations;
  static constexpr std::span<const demand_field> fields = sparse_attention_fields::table;

  /// "blocksparse forward, 2048 queries, 24 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const sparse_attention_config& config,
                                             const sparse_attention_facts& facts, int threads) {
    const std::int64_t items = estimate_of(config, facts, threads).items;
    const std::string_view worker = is_cuda(config.target) ? " multiprocessor" : " thread";
    return sentence({name_of(config.pattern), " ", name_of(config.pass), ", ", facts.demand.q_len,
                     " queries, ", items, " work item", items == 1 ? "" : "s", " for ", threads,
                     worker, threads == 1 ? "" : "s"});
  }

  /// The name of the row that would be made for this demand on this device.
  [[gnu::cold]] static std::string wanted_row(const sparse_attention_demand& demand,
                                              const device_facts& device,
                                              const sparse_attention_config&) {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    sparse_attention_config wanted{
        .target = device.highest, .pattern = demand.pattern, .pass = demand.pass};
    if (has_bf16_products(wanted.target)) wanted.target = backend::cpu_avx512;
    if (is_cuda(wanted.target)) {
      wanted.target = backend::cuda_sm80;
      sparse_attention_config fast = wanted;
      fast.type = demand.type;
      fast.head_dim = static_cast<int>(demand.head_dim);
      if (broken_rule(fast) == sparse_attention_rule::none && runs(fast, demand)) wanted = fast;
    }
    return std::string(tessera::name_of(wanted).view());
  }
};

}  // namespace tessera
