// The attention family as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/attention/cost.hpp>
#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/families/shared_memory.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// What keeps a table from having the row that is wanted first.
struct broken_wish {
  bool any, by_type, by_tiles, by_weights;

  constexpr broken_wish(const row_rule* rule) noexcept  // NOLINT: the answer of broken_table_rule
      : any(rule != nullptr),
        by_type(rule == &attention_rules::bf16_instructions_take_bf16 ||
                rule == &attention_rules::byte_products_add_nothing),
        by_tiles(rule == &attention_rules::amx_decode_has_whole_tiles),
        by_weights(rule == &attention_rules::decode_has_no_weights) {}
  constexpr explicit operator bool() const noexcept { return any; }
};

struct attention_family {
  using config_type = attention_config;
  using demand_type = attention_demand;
  using facts_type = attention_facts;

  static constexpr std::string_view name = "attention";
  static constexpr int number = 1;
  static constexpr int semantic_version = 1;
  /// One size may be a doubling off: beyond, which tile wins changes more often than it stays.
  static constexpr double max_log2_distance = 1;
  static constexpr std::span<const operation> operations = attention_operations;
  static constexpr std::span<const demand_field> fields = attention_fields::table;
  static constexpr std::string_view side_output = "dropout_mask";
  static constexpr const signature* side_form = &attention_table::form;

  /// Of a device that has the row's backend.
  static constexpr bool runs_on(const attention_config& config,
                                const device_facts& device) noexcept {
    return is_cpu(config.target) || shared_memory_bytes(config) <= device.shared_bytes_per_block;
  }
  /// "decode, 8 work items for 2 threads".
  [[gnu::cold]] static std::string reason_of(const attention_config& config,
                                             const attention_facts& facts, int threads) {
    const work_estimate work = estimate_of(config, facts, threads);
    const std::string_view s = threads == 1 ? "" : "s";
    const std::string_view items = work.items == 1 ? "" : "s";
    std::string text(enumerator_name(config.phase));
    if (is_cpu(config.target)) {
      append(text, {", ", work.items, " work item", items, " for ", threads, " thread", s});
      return text;
    }
    append(text, {", ", work.items, " block", items, " of ", config.block_q, " rows"});
    if (work.splits > 1) append(text, {", keys in ", work.splits, " parts"});
    append(text,
           {", for ", threads, " multiprocessor", s, " with ", work.items_per_core, " at a time"});
    return text;
  }

  [[gnu::cold]] static std::string missing_on(const attention_config& config,
                                              const device_facts& device) {
    return missing_shared_memory(shared_memory_bytes(config), device);
  }

  /// The name of the row that would be made for this demand on this device: what to add to the row
  /// list. `chosen` is the generic row that runs instead.
  [[gnu::cold]] static std::string wanted_row(const attention_demand& demand,
                                              const device_facts& device,
                                              const attention_config& chosen) {
    // What keeps rows from unaligned tensors is not the row list.
    const bool on_gpu = device.kind == device_kind::cuda;
    if (on_gpu && !(demand.aligned16 && is_cuda(device.highest))) return {};
    attention_config wanted;
    wanted.target = device.highest;
    wanted.type = demand.type;
    wanted.head_dim = demand.sizes.head_dim;
    wanted.v_head_dim = demand.sizes.v_head_dim;
    wanted.mask = mask_mode::window;
    wanted.phase = chosen.phase;
    wanted.keys = demand.keys();
    if (on_gpu && demand.pool_type != dtype::none) wanted.keys = key_storage::coded;
    wanted.features = base_features | demand.features;
    const auto broken = [&] { return broken_table_rule<broken_wish>(wanted); };
    if (wanted.target == backend::cuda_sm90 && broken()) wanted.target = backend::cuda_sm80;
    if (broken().by_type) wanted.target = backend::cpu_avx512;
    if (broken().by_tiles) wanted.target = backend::cpu_avx512_bf16;
    if (broken().by_weights) wanted.phase = attention_phase::prefill;
    if (broken()) return {};
    return std::string(name_of(resolved(wanted)).view());
  }
};

}  // namespace tessera
