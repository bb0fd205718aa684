// The family of sparse attention as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/families/sparse_attention/cost.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/families/sparse_attention/fits.hpp>
#include <tessera/families/sparse_attention/reflect.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

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

  /// "blocksparse forward, 2048 queries": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const sparse_attention_config& config,
                                              const sparse_attention_facts& facts) {
    return sentence(
        {name_of(config.pattern), " ", name_of(config.pass), ", ", facts.demand.q_len, " queries"});
  }

  /// The row that would be made for this demand.
  static sparse_attention_config wanted_config(const sparse_attention_demand& demand,
                                               backend target, backend highest) noexcept {
    sparse_attention_config wanted{
        .target = target, .pattern = demand.pattern, .pass = demand.pass};
    sparse_attention_config fast = wanted;
    fast.type = demand.type;
    fast.head_dim = static_cast<int>(demand.head_dim);
    const auto serves = [&] { return is_legal(fast) && runs(fast, demand); };
    fast.target = highest;
    if (!serves()) fast.target = target;
    return serves() ? fast : wanted;
  }
};

}  // namespace tessera
