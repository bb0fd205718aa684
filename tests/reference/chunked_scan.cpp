// What tests need to know of linear attention with decay.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include <tessera/families/chunked_scan/declaration.hpp>
#include <tessera/families/chunked_scan/rwkv6_declaration.hpp>

#include "../support/random.hpp"
#include "chunked_scan_backward.hpp"
#include "operations.hpp"
#include "pooled_states.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

bool is_rwkv6(const bound_call& call) {
  return &call.form() == &rwkv6_table::form;
}

scan_call scan_of_rwkv6(const bound_call& call) {
  const rwkv6_args& given = *reinterpret_cast<const rwkv6_args*>(call.tensors);
  const auto& wanted = call.options_as<rwkv6_options>();
  return {.q = given.r,
          .k = given.k,
          .v = given.v,
          .gk = given.w,
          .u = given.u,
          .initial_state = given.initial_state,
          .cu_seqlens = given.cu_seqlens,
          .scale = wanted.scale,
          .reverse = wanted.reverse,
          .raw_decay = wanted.raw_w};
}

scan_call scan_of(const bound_call& call) {
  if (is_rwkv6(call)) return scan_of_rwkv6(call);
  const recurrent_args& given = *reinterpret_cast<const recurrent_args*>(call.tensors);
  const auto& wanted = call.options_as<recurrent_options>();
  const double keys = static_cast<double>(given.q.extent[3]);
  return {.q = given.q,
          .k = given.k,
          .v = given.v,
          .g = given.g,
          .gk = given.gk,
          .gv = given.gv,
          .g_gamma = given.g_gamma,
          .initial_state = given.initial_state,
          .cu_seqlens = given.cu_seqlens,
          .scale = wanted.scale.value_or(1.0 / std::sqrt(keys)),
          .reverse = wanted.reverse};
}

/// Adds an output that the call has.
void add_output(const bound_call& call, std::string_view name, sized_values& from, double exponent,
                expected_tensors& to) {
  const auto index = static_cast<std::size_t>(declared::index_of(
      std::span<const tensor_form>(call.form().tensors), name, &tensor_form::name));
  if (!call.has(index)) return;
  std::vector<double> exponents(from.values.size(), exponent);
  to.push_back({.tensor = index,
                .values = std::move(from.values),
                .sizes = std::move(from.sizes),
                .logits = std::move(exponents)});
}

expected_tensors exact(const bound_call& call) {
  scan_outputs result = scan_forward(scan_of(call));
  expected_tensors all;
  add_output(call, "out", result.out, result.largest_exponent, all);
  add_output(call, "final_state", result.final_state, result.largest_exponent, all);
  return all;
}

expected_tensors exact_backward(const bound_call& call) {
  scan_gradients result = scan_backward(
      scan_of(call),
      {.d_out = tensor_named(call, "d_out"), .d_final_state = tensor_named(call, "d_final_state")});
  expected_tensors all;
  const auto add = [&](std::string_view name, sized_values& from) {
    add_output(call, name, from, result.largest_exponent, all);
  };
  add(is_rwkv6(call) ? "d_r" : "d_q", result.d_q);
  add("d_k", result.d_k);
  add("d_v", result.d_v);
  add("d_initial_state", result.d_initial_state);
  if (is_rwkv6(call)) {
    add("d_w", result.d_gk);
    add("d_u", result.d_u);
  } else {
    add("d_g", result.d_g);
    add("d_gk", result.d_gk);
    add("d_gv", result.d_gv);
  }
  return all;
}

/// Log decays of models: near 0 or moderate; of edges: none at all, and what forgets.
double drawn_decay(support::random_source& random, std::int64_t kind) {
  if (random.chance(0.02)) return random.pick({0.0, -1e-4, -50.0, -HUGE_VAL});
  const double size = kind == 0 ? 0.01 : kind == 1 ? 0.3 : 3.0;
  return -size * random.uniform();
}

bool is_decay(const bound_call& call, std::size_t tensor) {
  const std::string_view name = call.form().tensors[tensor].name;
  return name == "g" || name == "gk" || name == "gv" || name == "g_gamma" || name == "w";
}

/// A log decay as the call has it: raw ones are logarithms of what they stand for.
double as_given(const bound_call& call, double decay) {
  if (!is_rwkv6(call) || !call.options_as<rwkv6_options>().raw_w) return decay;
  return std::log(std::clamp(-decay, 1e-9, 60.0));
}

bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  if (!is_decay(call, tensor)) return false;
  const auto kind = random.below(3);
  for_each_element(call.tensors[tensor], [&](std::int64_t, std::int64_t offset) {
    store(call.tensors[tensor], offset, as_given(call, drawn_decay(random, kind)));
  });
  return true;
}

/// Log decays as layers of models have them: a memory of some twenty tokens.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  return is_decay(call, tensor) ? as_given(call, -0.1 * random.uniform())
                                : static_cast<double>(random.bell());
}

/// A multiplication and an addition to update an element of a state, and to read it.
void count(const bound_call& call, call_work& work) {
  const scan_call scan = scan_of(call);
  const double tokens = static_cast<double>(scan.q.extent[0] * scan.tokens());
  work.flops = 4.0 * tokens * static_cast<double>(scan.heads()) *
               static_cast<double>(scan.keys() * scan.values());
}

/// Three products for each element of a state on the way back, and its update once more.
void count_backward(const bound_call& call, call_work& work) {
  count(call, work);
  work.flops *= 3.0;
}

std::span<const std::string_view> independent(const bound_call& call) {
  static constexpr std::array<std::string_view, 2> heads{"H", "Hkv"};
  const bool grouped = std::ranges::count(call.form().dims, "Hkv", &dim::symbol) > 0;
  return std::span(heads).first(grouped ? 2 : 1);
}

/// q and k with the decay in them, and their score.
constexpr auto rounded_numbers = &rounded_in_chunks<chunked_scan_config, 3>;

constexpr operation_reference forward_named(std::string_view op) {
  return {.op = op,
          .exact = &pooled<&exact>,
          .fill = &fill,
          .rounded_numbers = rounded_numbers,
          .ordinary = &ordinary,
          .independent = &independent,
          .count = &count};
}
constexpr operation_reference backward_named(std::string_view op) {
  return {.op = op,
          .exact = &exact_backward,
          .fill = &fill,
          .rounded_numbers = rounded_numbers,
          .ordinary = &ordinary,
          .independent = &independent,
          .count = &count_backward};
}
constexpr std::array table{forward_named("recurrent"),
                           forward_named("gla"),
                           forward_named("lightning_attn"),
                           forward_named("rwkv6"),
                           backward_named("recurrent_backward"),
                           backward_named("gla_backward"),
                           backward_named("lightning_attn_backward"),
                           backward_named("rwkv6_backward")};

}  // namespace

std::span<const operation_reference> chunked_scan_references() noexcept {
  return table;
}

}  // namespace tessera::reference
