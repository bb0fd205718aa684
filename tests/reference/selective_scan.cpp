// What tests need to know of elementwise recurrences.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/families/selective_scan/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "pooled_states.hpp"
#include "rwkv4.hpp"
#include "rwkv4_gradients.hpp"
#include "state_space.hpp"
#include "state_space_gradients.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

/// An output of a call: values as its tensor stores them if they are floats; the error of an
/// element is relative to the largest sum of terms in its row, or the largest element, where sums
/// of terms have grown beyond all numbers over many tokens.
template <class Number>
expected_tensor expected_from(const bound_call& call, std::size_t tensor,
                              const std::vector<tracked<Number>>& numbers) {
  const tensor_view& view = call.tensors[tensor];
  const auto width = static_cast<std::size_t>(
      std::max<std::int64_t>(view.extent[static_cast<std::size_t>(view.rank - 1)], 1));
  expected_tensor expected{.tensor = tensor, .values = {}};
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    const Number value = numbers[at].value;
    expected.values.push_back(
        std::is_same_v<Number, float>
            ? static_cast<double>(rounded_to(view.type, static_cast<float>(value)))
            : static_cast<double>(value));
    if (at % width == 0) expected.sizes.push_back(0);
    const double size = numbers[at].size;
    expected.sizes.back() = std::max({expected.sizes.back(), std::fabs(static_cast<double>(value)),
                                      std::isfinite(size) ? size : 0.0});
  }
  return expected;
}

const state_space_args& state_space_args_of(const bound_call& call) {
  return *reinterpret_cast<const state_space_args*>(call.tensors);
}

template <class Number>
expected_tensors state_space(const bound_call& call) {
  using state_space_table::tensor;
  const state_space_evaluation<Number> evaluation(state_space_args_of(call),
                                                  call.options_as<state_space_options>(),
                                                  state_space_table::has_heads(call));
  const auto out = static_cast<std::size_t>(tensor("out"));
  const auto final_state = static_cast<std::size_t>(tensor("final_state"));
  expected_tensors all{expected_from(call, out, evaluation.out())};
  if (call.has(final_state)) {
    all.push_back(expected_from(call, final_state, evaluation.final_state()));
  }
  return all;
}

template <class Number>
expected_tensors state_space_backward(const bound_call& call) {
  using state_space_table::tensor;
  const state_space_gradients<Number> found(state_space_args_of(call),
                                            call.options_as<state_space_options>(),
                                            state_space_table::has_heads(call));
  expected_tensors all;
  const auto add = [&](std::int8_t tensor, const std::vector<tracked<Number>>& numbers) {
    const auto index = static_cast<std::size_t>(tensor);
    if (call.has(index)) all.push_back(expected_from(call, index, numbers));
  };
  add(tensor("d_x"), found.d_x);
  add(tensor("d_dt"), found.d_dt);
  add(tensor("d_A"), found.d_A);
  add(tensor("d_B"), found.d_B);
  add(tensor("d_C"), found.d_C);
  add(tensor("d_D"), found.d_D);
  add(tensor("d_z"), found.d_z);
  add(tensor("d_dt_bias"), found.d_dt_bias);
  add(tensor("d_initial_state"), found.d_initial_state);
  add(tensor("d_norm_weight"), found.d_norm_weight);
  return all;
}

/// Decays from none to complete; steps that are not negative, some of them 0.
bool fill_state_space(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  const bool steps = name == "dt" || name == "dt_bias";
  if (name != "A" && !steps) {
    // Sums of products of four tensors over all tokens stay below the largest f16.
    if (pass_of(static_cast<state_space_op>(call.op->place)) == scan_pass::forward) return false;
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, static_cast<double>(random.bell()) * 0.25);
    });
    return true;
  }
  if (steps && call.options_as<state_space_options>().dt_softplus) return false;
  const double scale = name == "A" ? random.pick({0.001, 1.0, 1.0, 30.0}) : 0.3;
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const double size = std::fabs(static_cast<double>(random.bell())) * scale;
    const bool none = random.chance(0.05);
    store(view, offset, none ? 0.0 : name == "A" ? -size : size);
  });
  return true;
}

template <class Number>
expected_tensors rwkv4(const bound_call& call) {
  using rwkv4_table::tensor;
  const rwkv4_evaluation<Number> evaluation(*reinterpret_cast<const rwkv4_args*>(call.tensors));
  const auto out = static_cast<std::size_t>(tensor("out"));
  const auto final_state = static_cast<std::size_t>(tensor("final_state"));
  expected_tensors all{expected_from(call, out, evaluation.out())};
  if (call.has(final_state)) {
    all.push_back(expected_from(call, final_state, evaluation.final_state()));
  }
  return all;
}

template <class Number>
expected_tensors rwkv4_backward(const bound_call& call) {
  using rwkv4_table::tensor;
  const rwkv4_gradients<Number> found(*reinterpret_cast<const rwkv4_args*>(call.tensors));
  expected_tensors all;
  const auto add = [&](std::int8_t tensor, const std::vector<tracked<Number>>& numbers) {
    const auto index = static_cast<std::size_t>(tensor);
    if (call.has(index)) all.push_back(expected_from(call, index, numbers));
  };
  add(tensor("d_k"), found.d_k);
  add(tensor("d_v"), found.d_v);
  add(tensor("d_w"), found.d_w);
  add(tensor("d_u"), found.d_u);
  add(tensor("d_initial_state"), found.d_initial_state);
  return all;
}

/// Decays from none to complete; sums whose weights are positive.
bool fill_rwkv4(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  if (name == "w") {
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset,
            random.pick({-12.0, -4.0, 0.0, 3.0}) + static_cast<double>(random.bell()));
    });
    return true;
  }
  if (name != "initial_state") return false;
  const std::int64_t channels = view.extent[2];
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const double value = static_cast<double>(random.bell());
    store(view, offset, flat / channels % 3 == 1 ? std::fabs(value) + 0.01 : value);
  });
  return true;
}

/// Channels, or heads with the columns of their norm: no norm has columns of two shares.
std::span<const std::string_view> independent(const bound_call& call) {
  static constexpr std::array<std::string_view, 2> channels{"D", "G"};
  static constexpr std::array<std::string_view, 3> heads{"H", "G", "W"};
  if (!state_space_table::has_heads(call)) return channels;
  const auto& options = call.options_as<state_space_options>();
  if (!options.norm) return std::span(heads).first(2);
  const state_space_args& args = state_space_args_of(call);
  const std::int64_t shares = std::gcd(args.x.extent[2], args.B.extent[2]);
  const std::int64_t columns = args.x.extent[2] * args.x.extent[3];
  const std::int64_t group = options.norm_group_size.value_or(columns);
  return columns / shares % group == 0 ? std::span<const std::string_view>(heads)
                                       : std::span<const std::string_view>();
}

/// A state decays, takes a product in and gives one out; three times that on the way back.
void count(const bound_call& call, call_work& work) {
  const state_space_args& args = state_space_args_of(call);
  const std::int64_t states = args.B.extent[static_cast<std::size_t>(args.B.rank - 1)];
  const bool backward = pass_of(static_cast<state_space_op>(call.op->place)) == scan_pass::backward;
  work.flops = (backward ? 15.0 : 5.0) * static_cast<double>(args.x.elements() * states);
}

constexpr operation_reference state_space_named(std::string_view op) {
  return {.op = op,
          .exact = &pooled<&state_space<double>>,
          .as_stored = &pooled<&state_space<float>>,
          .fill = &fill_state_space,
          .independent = &independent,
          .count = &count};
}

constexpr operation_reference state_space_backward_named(std::string_view op) {
  return {.op = op,
          .exact = &state_space_backward<double>,
          .as_stored = &state_space_backward<float>,
          .fill = &fill_state_space,
          .independent = &independent,
          .count = &count};
}

constexpr std::array table{state_space_named("state_space_v1"),
                           state_space_named("state_space_v2"),
                           state_space_backward_named("state_space_v1_backward"),
                           state_space_backward_named("state_space_v2_backward"),
                           operation_reference{.op = "rwkv4",
                                               .exact = &pooled<&rwkv4<double>>,
                                               .as_stored = &pooled<&rwkv4<float>>,
                                               .fill = &fill_rwkv4},
                           operation_reference{.op = "rwkv4_backward",
                                               .exact = &rwkv4_backward<double>,
                                               .as_stored = &rwkv4_backward<float>,
                                               .fill = &fill_rwkv4}};

}  // namespace

std::span<const operation_reference> selective_scan_references() noexcept {
  return table;
}

}  // namespace tessera::reference
