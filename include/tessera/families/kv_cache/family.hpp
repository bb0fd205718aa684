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
#include <tessera/spec/backend.hpp>
#include <tessera/spec/sentence.hpp>

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

  /// "append, 32 KiB": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const kv_cache_config& config,
                                              const kv_cache_facts& facts) {
    return sentence(
        {name_of(config.pass), ", ", static_cast<std::int64_t>(facts.bytes / 1024), " KiB"});
  }

  /// The row that would be made for this demand.
  static kv_cache_config wanted_config(const kv_cache_demand& demand, backend target,
                                       backend /*highest*/) noexcept {
    kv_cache_config wanted{.target = target, .pass = demand.pass};
    if (!is_legal_in_table(wanted)) wanted.target = backend::cpu_generic;
    return wanted;
  }
};

}  // namespace tessera
