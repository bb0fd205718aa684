// The family of the gradients of attention as the chain of choosers sees it; see
// runtime/family.hpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/attention_backward/cost.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/attention_backward/reflect.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/spec/backend.hpp>

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

  /// "gradients": what a row does, before how the work is cut.
  [[gnu::cold]] static std::string subject_of(const attention_backward_config&,
                                              const attention_backward_facts&) {
    return "gradients";
  }

  /// The row that would be made for this demand.
  static std::optional<attention_backward_config> wanted_config(
      const attention_backward_demand& demand, backend target, backend highest) noexcept {
    const attention_sizes& sizes = demand.scores.sizes;
    if (sizes.head_dim != sizes.v_head_dim) return {};
    attention_backward_config wanted{
        .target = target, .type = demand.scores.type, .head_dim = sizes.head_dim};
    if (is_cuda(target)) {
      wanted.d_q_atomics = true;
      if (wanted.head_dim <= 128) wanted.target = highest;
    } else if (has_bf16_products(highest) && wanted.type == dtype::bf16) {
      wanted.target = highest;
    }
    if (!is_legal_in_table(wanted)) return {};
    return wanted;
  }
};

}  // namespace tessera
