// The delta rule operations, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/delta_rule/gate_options.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::delta_rule_table {

using options = delta_rule_options;
using kernel = delta_rule_kernel_args;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "slots"},
    dim{.symbol = "H", .label = "heads", .least = 1, .most = most_recurrent_heads},
    dim{.symbol = "HV", .label = "heads", .least = 1, .most = most_recurrent_heads},
    dim{.symbol = "K", .label = "key dim", .least = 1, .most = most_recurrent_dim},
    dim{.symbol = "V", .label = "value dim", .least = 1, .most = most_recurrent_dim},
};
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}

inline constexpr std::array<std::string_view, 6> layouts{
    "dense", "packed", "pooled", "dense per-channel", "packed per-channel", "pooled per-channel"};
constexpr texts of_layouts(std::string_view dense, std::string_view packed,
                           std::string_view pooled) {
  return {dense, packed, pooled, dense, packed, pooled};
}
constexpr texts of_layouts(std::string_view dense, std::string_view packed) {
  return of_layouts(dense, packed, packed);
}
inline constexpr texts of_keys = of_layouts("B T H K", "1:batch T H K");
inline constexpr texts of_values = of_layouts("B T HV V", "1:batch T HV V");
inline constexpr texts of_heads = of_layouts("B T HV", "1:batch T HV");
inline constexpr texts of_head_gates{"B T HV", "1:batch T HV", "1:batch T HV", "-", "-", "-"};
inline constexpr texts of_channel_gates{
    "-", "-", "-", "B T HV K", "1:batch T HV K", "1:batch T HV K"};
inline constexpr texts of_biases{"HV", "HV", "HV", "HV K", "HV K", "HV K"};
inline constexpr texts of_states = of_layouts("B HV K V", "N HV K V", "P HV K V");
inline constexpr std::string_view per_channel =
    "is given with gk; a decay is per head or per channel";
inline constexpr std::string_view per_head = "is given without gk";

using declared::operand;
constexpr tensor_text gate(std::string_view name, const texts& shapes,
                           std::string_view elsewhere = {}) {
  return {.name = name, .shapes = shapes, .types = floating_types, .elsewhere = elsewhere};
}
/// f32 tensors that no choice depends on.
constexpr tensor_text single(std::string_view name, const texts& shapes) {
  return {
      .name = name, .shapes = shapes, .types = dtype::f32, .contiguous_rows = true, .free = true};
}
using declared::as_output;
constexpr tensor_text optional_output(tensor_text text, std::string_view gradient_of = {}) {
  text = as_output(text, gradient_of);
  text.free = true;
  return text;
}
constexpr tensor_text with_rows(tensor_text text) {
  text.contiguous_rows = text.aligned_rows = true;
  return text;
}

inline constexpr std::array tensor_texts{
    operand("q", of_keys),
    operand("k", of_keys, "q"),
    operand("v", of_values, "q"),
    gate("g", of_head_gates, per_channel),
    with_rows(gate("gk", of_channel_gates, "is given, the operation has decays per head")),
    gate("beta", of_heads),
    single("A_log", declared::everywhere("HV")),
    single("dt_bias", of_biases),
    single("initial_state", of_states),
    declared::packed_offsets(of_layouts("-", "N+1")),
    tensor_text{.name = "seg_ids",
                .shapes = of_layouts("B T", "-"),
                .types = dtype::i32,
                .elsewhere = "is given with cu_seqlens; both say where sequences begin"},
    as_output(operand("out", of_values, "q")),
    declared::final_state(of_states),
    operand("d_out", of_values, "q"),
    single("d_final_state", of_states),
    as_output(operand("d_q", of_keys, "q"), "q"),
    as_output(operand("d_k", of_keys, "q"), "k"),
    as_output(operand("d_v", of_values, "q"), "v"),
    optional_output(gate("d_g", of_head_gates, per_channel), "g"),
    optional_output(with_rows(gate("d_gk", of_channel_gates, per_head)), "gk"),
    as_output(gate("d_beta", of_heads), "beta"),
    optional_output(single("d_A_log", declared::everywhere("HV")), "A_log"),
    optional_output(single("d_dt_bias", of_biases), "dt_bias"),
    optional_output(single("d_initial_state", of_states), "initial_state"),
    declared::pool_slots(of_layouts("-", "-", "N"), "P"),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr auto option_forms = gate_option_forms<options>;

inline bool has_raw_gates(const bound_call& call) {
  return call.options_as<options>().use_gate;
}
/// A gradient goes with what it belongs to.
inline constexpr std::array rules{
    tensor_rule{tensor("A_log"), &has_raw_gates, "is given, use_gate is false"},
    tensor_rule{tensor("dt_bias"), &has_raw_gates, "is given, use_gate is false"},
    declared::goes_with<tensor("d_g"), tensor("g")>("is given, g is absent"),
    declared::goes_with<tensor("d_gk"), tensor("gk")>("is given, gk is absent"),
    declared::goes_with<tensor("d_A_log"), tensor("A_log")>("is given, A_log is absent"),
    declared::goes_with<tensor("d_dt_bias"), tensor("dt_bias")>("is given, dt_bias is absent"),
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};
inline constexpr std::array multiples{multiple_rule{dim_of("HV"), dim_of("H")}};

inline int layout_of(const bound_call& call) {
  return (call.has(tensor("gk")) ? 3 : 0) +
         declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>(call);
}

/// What options ask of each other and of tensors.
inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  return gates_agree(wanted, failure) &&
         has_gate_tensors(wanted, call.has(tensor("g")) || call.has(tensor("gk")),
                          call.has(tensor("A_log")), failure);
}

inline constexpr signature form =
    declared::signature_of<delta_rule_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

/// Rows [B,T,head,...], at `at` in the kernel args.
consteval binding_text rows_at(std::string_view name, std::size_t at, std::string_view heads) {
  return {name,
          at + offsetof(delta_rule_input, data),
          {{{"B", at + offsetof(delta_rule_input, entry)},
            {"T", at + offsetof(delta_rule_input, token)},
            {heads, at + offsetof(delta_rule_input, head)}}},
          at + offsetof(delta_rule_input, type)};
}
/// States of sequences, or of what `of` names.
consteval binding_text states_at(std::string_view name, std::size_t at,
                                 std::string_view of = "P|B|N") {
  using states = delta_rule_states<void>;
  return {name,
          at + offsetof(states, data),
          {{{of, at + offsetof(states, sequence)},
            {"HV", at + offsetof(states, head)},
            {"K", at + offsetof(states, channel)}}},
          at + offsetof(states, type)};
}
consteval binding_text slots_at(std::string_view name) {
  return {name, offsetof(kernel, slots), {{{"N", offsetof(kernel, slot_stride)}}}};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_at("q", offsetof(kernel, q), "H"),
        rows_at("k", offsetof(kernel, k), "H"),
        rows_at("v", offsetof(kernel, v), "HV"),
        rows_at("g", offsetof(kernel, decay), "HV"),
        rows_at("gk", offsetof(kernel, decay), "HV"),
        rows_at("beta", offsetof(kernel, beta), "HV"),
        rows_at("out", offsetof(kernel, out), "HV"),
        binding_text{
            "A_log", offsetof(kernel, gate.a_log), {{{"HV", offsetof(kernel, gate.a_log_head)}}}},
        binding_text{
            "dt_bias", offsetof(kernel, gate.bias), {{{"HV", offsetof(kernel, gate.bias_head)}}}},
        rows_at("d_out", offsetof(kernel, d_out), "HV"),
        rows_at("d_q", offsetof(kernel, d_q), "H"),
        rows_at("d_k", offsetof(kernel, d_k), "H"),
        rows_at("d_v", offsetof(kernel, d_v), "HV"),
        rows_at("d_g", offsetof(kernel, d_decay), "HV"),
        rows_at("d_gk", offsetof(kernel, d_decay), "HV"),
        rows_at("d_beta", offsetof(kernel, d_beta), "HV"),
        binding_text{
            "d_A_log", offsetof(kernel, d_a_log), {{{"HV", offsetof(kernel, d_a_log_head)}}}},
        binding_text{
            "d_dt_bias", offsetof(kernel, d_bias), {{{"HV", offsetof(kernel, d_bias_head)}}}},
        states_at("d_final_state", offsetof(kernel, d_last)),
        states_at("d_initial_state", offsetof(kernel, d_initial)),
        states_at("initial_state", offsetof(kernel, initial)),
        states_at("final_state", offsetof(kernel, last)),
        binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)},
        slots_at("state_indices"),
        binding_text{"seg_ids",
                     offsetof(kernel, seg_ids),
                     {{{"B", offsetof(kernel, seg_entry)}, {"T", offsetof(kernel, seg_token)}}}},
    },
    form);
inline constexpr auto sizes = declared::sizes_in(
    std::array{
        size_text{"N|B", offsetof(kernel, sequences)}, size_text{"T", offsetof(kernel, tokens)},
        size_text{"H", offsetof(kernel, key_heads)}, size_text{"HV", offsetof(kernel, value_heads)},
        size_text{"K", offsetof(kernel, key_dim)}, size_text{"V", offsetof(kernel, value_dim)},
        size_text{"P", offsetof(kernel, slot_count)}},
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  set_gates(call.options_as<options>(), filled);
  filled.decay_has_channels = call.has(tensor("gk"));
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of(
        "gated_delta_rule", 0, form, lower,
        "q! k! v! cu_seqlens seg_ids g beta! A_log dt_bias initial_state out! final_state "
        "state_indices"),
    declared::also_called(
        declared::operation_of(
            "kernel_delta_attention", 1, form, lower,
            "q! k! v! cu_seqlens g gk beta! A_log dt_bias initial_state out! final_state "
            "state_indices"),
        "kda"),
    declared::operation_of("gated_delta_rule_backward", 2, form, lower,
                           "q! k! v! cu_seqlens seg_ids g beta! A_log dt_bias initial_state d_out! "
                           "d_final_state d_q! d_k! d_v! d_g d_beta! d_A_log d_dt_bias "
                           "d_initial_state"),
    declared::also_called(
        declared::operation_of("kernel_delta_attention_backward", 3, form, lower,
                               "q! k! v! cu_seqlens g gk beta! A_log dt_bias initial_state d_out! "
                               "d_final_state d_q! d_k! d_v! d_g d_gk d_beta! d_A_log d_dt_bias "
                               "d_initial_state"),
        "kda_backward"),
};

}  // namespace tessera::delta_rule_table
