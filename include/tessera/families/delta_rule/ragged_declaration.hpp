// The delta rule over a pool of states, declared: tensors, dims, options, and where kernels find
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/delta_rule/declaration.hpp>
#include <tessera/families/delta_rule/ragged_problem.hpp>

namespace tessera::ragged_delta_rule_table {

using declared::as_output;
using declared::everywhere;
using declared::operand;
using delta_rule_table::gate;
using delta_rule_table::optional_output;
using delta_rule_table::single;
using options = delta_rule_options;
using kernel = delta_rule_kernel_args;

/// Dims of the sequences and of the pool, which both forms have.
inline constexpr dim tokens{.symbol = "T", .label = "length"};
inline constexpr dim sequences{.symbol = "N", .label = "sequences"};
inline constexpr dim slots{.symbol = "P", .label = "slots"};
inline constexpr dim value_heads{
    .symbol = "HV", .label = "heads", .least = 1, .most = delta_rule_table::most_recurrent_heads};
inline constexpr dim key_dim{
    .symbol = "K", .label = "key dim", .least = 1, .most = delta_rule_table::most_recurrent_dim};
inline constexpr dim value_dim{
    .symbol = "V", .label = "value dim", .least = 1, .most = delta_rule_table::most_recurrent_dim};
inline constexpr std::array dims{tokens,
                                 sequences,
                                 slots,
                                 dim{.symbol = "H",
                                     .label = "heads",
                                     .least = 1,
                                     .most = delta_rule_table::most_recurrent_heads},
                                 value_heads,
                                 key_dim,
                                 value_dim};
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}

inline constexpr std::array<std::string_view, 1> layouts{"ragged"};

/// A pool as the call has it, or as its gradient does.
constexpr tensor_text pool(std::string_view name, tensor_use use) {
  return {.name = name,
          .shapes = everywhere("P HV K V"),
          .types = floating_types,
          .use = use,
          .contiguous_rows = true};
}
constexpr tensor_text pool_gradient() {
  tensor_text text = pool("d_state_pool", tensor_use::input_and_output);
  text.gradient_of = "state_pool";
  text.free = true;
  return text;
}
inline constexpr tensor_text offsets = declared::packed_offsets(everywhere("N+1"));
constexpr tensor_text required_slots() {
  tensor_text text = declared::pool_slots(everywhere("N"), "P");
  text.free = false;
  text.elsewhere = {};
  return text;
}
inline constexpr tensor_text indices = required_slots();
inline constexpr tensor_text flags{
    .name = "has_initial_state", .shapes = everywhere("N"), .types = dtype::i32, .free = true};

/// `pool_use` is what an operation does with the pool.
consteval auto tensor_texts(tensor_use pool_use) {
  return std::array{
      operand("q", everywhere("T H K")),
      operand("k", everywhere("T H K"), "q"),
      operand("v", everywhere("T HV V"), "q"),
      gate("g", everywhere("T HV")),
      gate("beta", everywhere("T HV")),
      single("A_log", everywhere("HV")),
      single("dt_bias", everywhere("HV")),
      pool("state_pool", pool_use),
      offsets,
      indices,
      flags,
      as_output(operand("out", everywhere("T HV V"), "q")),
      operand("d_out", everywhere("T HV V"), "q"),
      as_output(operand("d_q", everywhere("T H K"), "q"), "q"),
      as_output(operand("d_k", everywhere("T H K"), "q"), "k"),
      as_output(operand("d_v", everywhere("T HV V"), "q"), "v"),
      optional_output(gate("d_g", everywhere("T HV")), "g"),
      as_output(gate("d_beta", everywhere("T HV")), "beta"),
      optional_output(single("d_A_log", everywhere("HV")), "A_log"),
      optional_output(single("d_dt_bias", everywhere("HV")), "dt_bias"),
      pool_gradient(),
  };
}
inline constexpr auto texts = tensor_texts(tensor_use::input_and_output);
/// The gradient reads the pool that the call read.
inline constexpr auto backward_texts = tensor_texts(tensor_use::input);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(texts, name);
}

inline constexpr std::array rules{
    tensor_rule{tensor("A_log"), &delta_rule_table::has_raw_gates, "is given, use_gate is false"},
    tensor_rule{tensor("dt_bias"), &delta_rule_table::has_raw_gates, "is given, use_gate is false"},
    declared::goes_with<tensor("d_g"), tensor("g")>("is given, g is absent"),
    declared::goes_with<tensor("d_A_log"), tensor("A_log")>("is given, A_log is absent"),
    declared::goes_with<tensor("d_dt_bias"), tensor("dt_bias")>("is given, dt_bias is absent"),
};
inline constexpr std::array multiples{multiple_rule{dim_of("HV"), dim_of("H")}};

/// What options ask of each other and of tensors.
inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  return delta_rule_table::gates_agree(wanted, failure) &&
         delta_rule_table::has_gate_tensors(wanted, call.has(tensor("g")),
                                            call.has(tensor("A_log")), failure);
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<ragged_delta_rule_problem, Texts, dims, layouts, texts>({
      .options = delta_rule_table::option_forms,
      .rules = rules,
      .multiples = multiples,
      .hook = &hook,
  });
}
inline constexpr signature form = form_of<texts>();
inline constexpr signature backward_form = form_of<backward_texts>();

// Where a kernel finds them.

inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

/// Rows [T,head,...], at `at` in the kernel args.
consteval binding_text rows_at(std::string_view name, std::size_t at, std::string_view heads) {
  return {name,
          at + offsetof(delta_rule_input, data),
          {{{"T", at + offsetof(delta_rule_input, token)},
            {heads, at + offsetof(delta_rule_input, head)}}},
          at + offsetof(delta_rule_input, type)};
}
consteval binding_text head_numbers_at(std::string_view name, std::size_t data,
                                       std::size_t stride) {
  return {name, data, {{{"HV", stride}}}};
}
/// A pool as states of slots.
consteval binding_text pool_at(std::string_view name, std::size_t at) {
  return delta_rule_table::states_at(name, at, "P");
}
/// The tensors that both forms have under the same names.
inline constexpr std::array shared_bindings{
    rows_at("out", offsetof(kernel, out), "HV"),
    rows_at("d_out", offsetof(kernel, d_out), "HV"),
    head_numbers_at("A_log", offsetof(kernel, gate.a_log), offsetof(kernel, gate.a_log_head)),
    head_numbers_at("dt_bias", offsetof(kernel, gate.bias), offsetof(kernel, gate.bias_head)),
    head_numbers_at("d_A_log", offsetof(kernel, d_a_log), offsetof(kernel, d_a_log_head)),
    head_numbers_at("d_dt_bias", offsetof(kernel, d_bias), offsetof(kernel, d_bias_head)),
    pool_at("state_pool", offsetof(kernel, initial)),
    pool_at("state_pool", offsetof(kernel, last)),
    pool_at("d_state_pool", offsetof(kernel, d_last)),
    pool_at("d_state_pool", offsetof(kernel, d_initial)),
    binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)},
    delta_rule_table::slots_at("state_indices"),
    binding_text{"has_initial_state",
                 offsetof(kernel, has_initial),
                 {{{"N", offsetof(kernel, has_initial_stride)}}}},
};
inline constexpr auto bindings = declared::bindings_in(
    declared::with(
        shared_bindings, rows_at("q", offsetof(kernel, q), "H"),
        rows_at("k", offsetof(kernel, k), "H"), rows_at("v", offsetof(kernel, v), "HV"),
        rows_at("g", offsetof(kernel, decay), "HV"), rows_at("beta", offsetof(kernel, beta), "HV"),
        rows_at("d_q", offsetof(kernel, d_q), "H"), rows_at("d_k", offsetof(kernel, d_k), "H"),
        rows_at("d_v", offsetof(kernel, d_v), "HV"),
        rows_at("d_g", offsetof(kernel, d_decay), "HV"),
        rows_at("d_beta", offsetof(kernel, d_beta), "HV")),
    form);
inline constexpr std::array shared_sizes{
    size_text{"N", offsetof(kernel, sequences)},    size_text{"T", offsetof(kernel, tokens)},
    size_text{"HV", offsetof(kernel, value_heads)}, size_text{"K", offsetof(kernel, key_dim)},
    size_text{"V", offsetof(kernel, value_dim)},    size_text{"P", offsetof(kernel, slot_count)}};
inline constexpr auto sizes = declared::sizes_in(
    declared::with(shared_sizes, size_text{"H", offsetof(kernel, key_heads)}), form);

inline void finish(const bound_call& call, void* to) {
  delta_rule_table::set_gates(call.options_as<options>(), *static_cast<kernel*>(to));
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

// Offsets are checked before the slots of sequences that have tokens.
inline constexpr std::array operations{
    declared::operation_of("ragged_gated_delta_rule", 0, form, lower,
                           "q! k! v! g beta! A_log dt_bias state_pool! cu_seqlens! state_indices! "
                           "has_initial_state out!"),
    declared::operation_of("ragged_gated_delta_rule_backward", 1, backward_form, lower,
                           "q! k! v! g beta! A_log dt_bias state_pool! cu_seqlens! state_indices! "
                           "has_initial_state d_out! d_q! d_k! d_v! d_g d_beta! d_A_log d_dt_bias "
                           "d_state_pool"),
};

}  // namespace tessera::ragged_delta_rule_table
