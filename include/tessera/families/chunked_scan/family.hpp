// The family of linear attention with decay as the chain of choosers sees it; see
// runtime/family.hpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/chunked_scan/cost.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/chunked_scan/fits.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/chunked_scan/reflect.hpp>
#include <tessera/families/recurrent_fits.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/families/shared_memory.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/sentence.hpp>

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
  static_assert(say_what_is_aligned(operations));
  static constexpr std::span<const demand_field> fields = chunked_scan_fields::table;

  /// "forward, step": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const chunked_scan_config& config,
                                              const chunked_scan_facts&) {
    return sentence({name_of(config.pass), ", ", enumerator_name(config.form)});
  }

  /// Of a device that has the row's backend.
  static constexpr bool runs_on(const chunked_scan_config& config,
                                const device_facts& device) noexcept {
    return chunk_shared_bytes(config) <= device.shared_bytes_per_block;
  }
  [[gnu::cold]] static std::string missing_on(const chunked_scan_config& config,
                                              const device_facts& device) {
    return missing_shared_memory(chunk_shared_bytes(config), device);
  }

  /// The row that would be made for this demand.
  static std::optional<chunked_scan_config> wanted_config(const chunked_scan_demand& demand,
                                                          backend target,
                                                          backend /*highest*/) noexcept {
    chunked_scan_config wanted{.target = target, .type = demand.type, .pass = demand.pass};
    if (!is_cuda(target)) return wanted;
    wanted.key_dim = recurrent_key_dim_for(demand.keys);
    if (wanted.key_dim == 0) return {};
    const bool prompts = demand.tokens >= demand.sequences * tokens_of_chunk && demand.aligned &&
                         demand.decay != chunked_scan_decay::keys_and_values;
    wanted.form = prompts ? chunked_scan_form::chunk : chunked_scan_form::step;
    const bool legal = is_legal(wanted);
    if (!legal || !runs(wanted, demand)) wanted.form = chunked_scan_form::step;
    return wanted;
  }
};

}  // namespace tessera
