// What tests need to know of the delta rule operations.
#include "delta_rule.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include <tessera/families/delta_rule/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "pooled_states.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using args = delta_rule_args;
using options = delta_rule_options;

constexpr std::size_t tensor(std::string_view name) {
  const auto forms = delta_rule_table::form.tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].name == name) return i;
  }
  throw "no such tensor";
}

const args& args_of(const bound_call& call) {
  return *reinterpret_cast<const args*>(call.tensors);
}
bool is_backward(const bound_call& call) {
  return call.op->name.ends_with("_backward");
}

/// Results of a call in a precision; rounded to the types of the tensors where that is float.
template <class Number>
expected_tensors evaluated(const bound_call& call) {
  delta_evaluation<Number> all(args_of(call), call.options_as<options>(), is_backward(call));
  delta_result& found = all.result;
  expected_tensors outputs;
  for (auto [name, result] : {std::pair<std::string_view, delta_tensor*>{"out", &found.out},
                              {"final_state", &found.final_state},
                              {"d_q", &found.d_q},
                              {"d_k", &found.d_k},
                              {"d_v", &found.d_v},
                              {"d_g", &found.d_g},
                              {"d_gk", &found.d_gk},
                              {"d_beta", &found.d_beta},
                              {"d_A_log", &found.d_A_log},
                              {"d_dt_bias", &found.d_dt_bias},
                              {"d_initial_state", &found.d_initial_state}}) {
    if (result->sizes.empty() && result->values.empty()) continue;
    const std::size_t place = tensor(name);
    if (!call.has(place)) continue;
    if constexpr (std::is_same_v<Number, float>) {
      for (double& value : result->values) {
        value =
            static_cast<double>(rounded_to(call.tensors[place].type, static_cast<float>(value)));
      }
    }
    outputs.push_back({.tensor = place,
                       .values = std::move(result->values),
                       .sizes = std::move(result->sizes),
                       .least_share = least_share_of_states});
  }
  return outputs;
}

/// Decays at most 0, beta between 0 and 1, keys of length 1 or less: states that stay bounded.
bool fill(const bound_call& call, std::size_t place, support::random_source& random) {
  const options& wanted = call.options_as<options>();
  const tensor_view& view = call.tensors[place];
  const bool decays = place == tensor("g") || place == tensor("gk");
  if (decays && !wanted.use_gate) {
    const double scale = random.pick({0.0, 0.02, 0.3, 3.0, 40.0});
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, -scale * std::fabs(static_cast<double>(random.bell())));
    });
    return true;
  }
  if (place == tensor("beta") && !wanted.use_beta_sigmoid) {
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, random.chance(0.05) ? 0.0 : random.uniform());
    });
    return true;
  }
  if (place == tensor("k") && !wanted.use_qk_l2norm) {
    // Bells are below 3.5.
    const double scale = 0.28 / std::sqrt(static_cast<double>(view.extent[3]));
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, scale * static_cast<double>(random.bell()));
    });
    return true;
  }
  return false;
}

/// Padding is not read.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const tensor_view& ids = args_of(call).seg_ids;
  if (!ids.present()) return;
  for (const std::string_view name : {"q", "k", "v", "g", "gk", "beta", "d_out"}) {
    const std::size_t place = tensor(name);
    const tensor_view& view = call.tensors[place];
    if (!view.present()) continue;
    seen[place] = seen_elements(view);
    std::int64_t of_token = 1;
    for (int axis = 2; axis < view.rank; ++axis) {
      of_token *= view.extent[static_cast<std::size_t>(axis)];
    }
    for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const std::int64_t token = flat / of_token;
      if (at(ids, token / view.extent[1], token % view.extent[1]) >= 0) seen[place].mark(offset);
    });
  }
}

std::span<const std::string_view> independent(const bound_call&) {
  static constexpr std::array<std::string_view, 2> heads{"H", "HV"};
  return heads;
}

void count(const bound_call& call, call_work& work) {
  const bool backward =
      pass_of(static_cast<delta_rule_op>(call.op->place)) == delta_rule_pass::backward;
  work.flops =
      delta_flops(call.tensors[tensor("v")], call.tensors[tensor("q")].extent[3], backward);
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &pooled<&evaluated<double>>,
          .as_stored = &pooled<&evaluated<float>>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .row_extent = &key_dim_of_chunks,
          .rounded_numbers = rounded_by_delta_rule,
          .independent = &independent,
          .count = &count};
}
constexpr std::array table{reference_named("gated_delta_rule"),
                           reference_named("kernel_delta_attention"),
                           reference_named("gated_delta_rule_backward"),
                           reference_named("kernel_delta_attention_backward")};

}  // namespace

std::span<const operation_reference> delta_rule_references() noexcept {
  return table;
}

}  // namespace tessera::reference
