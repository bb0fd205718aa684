// The RWKV-7 operations, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/delta_rule/declaration.hpp>
#include <tessera/families/delta_rule/rwkv7_problem.hpp>

namespace tessera::rwkv7_table {

using delta_rule_table::optional_output;
using delta_rule_table::rows_at;
using delta_rule_table::single;
using delta_rule_table::states_at;
using options = rwkv7_options;
using kernel = delta_rule_kernel_args;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "slots"},
    dim{.symbol = "HV",
        .label = "heads",
        .least = 1,
        .most = delta_rule_table::most_recurrent_heads},
    dim{.symbol = "K",
        .label = "key dim",
        .least = 1,
        .most = delta_rule_table::most_recurrent_dim},
    dim{.symbol = "V",
        .label = "value dim",
        .least = 1,
        .most = delta_rule_table::most_recurrent_dim},
};
inline constexpr std::array<std::string_view, 3> layouts{"dense", "packed", "pooled"};
inline constexpr texts of_keys{"B T HV K", "1:batch T HV K", "1:batch T HV K"};
inline constexpr texts of_values{"B T HV V", "1:batch T HV V", "1:batch T HV V"};
inline constexpr texts of_states{"B HV K V", "N HV K V", "P HV K V"};

using declared::as_output;
using declared::operand;
/// Decays are read a number at a time.
constexpr tensor_text decay(std::string_view name) {
  return {.name = name, .shapes = of_keys, .types = floating_types, .contiguous_rows = true};
}

inline constexpr std::array tensor_texts{
    operand("r", of_keys),
    decay("w"),
    operand("k", of_keys, "r"),
    operand("v", of_values, "r"),
    operand("a", of_keys, "r"),
    operand("b", of_keys, "r"),
    operand("kk", of_keys, "r"),
    single("initial_state", of_states),
    declared::packed_offsets({"-", "N+1", "N+1"}),
    as_output(operand("out", of_values, "r")),
    declared::final_state(of_states),
    operand("d_out", of_values, "r"),
    single("d_final_state", of_states),
    as_output(operand("d_r", of_keys), "r"),
    as_output(decay("d_w"), "w"),
    as_output(operand("d_k", of_keys, "r"), "k"),
    as_output(operand("d_v", of_values, "r"), "v"),
    as_output(operand("d_a", of_keys, "r"), "a"),
    as_output(operand("d_b", of_keys, "r"), "b"),
    as_output(operand("d_kk", of_keys, "r"), "kk"),
    optional_output(single("d_initial_state", of_states), "initial_state"),
    declared::pool_slots({"-", "-", "N"}, "P"),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array option_forms{
    option_form{.name = "scale",
                .offset = offsetof(options, scale),
                .type = option_type::number,
                .limit = option_limit::finite_float,
                .free = true},
    option_form{.name = "reverse", .offset = offsetof(options, reverse), .free = true},
};
inline constexpr std::array rules{
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};

inline constexpr signature form =
    declared::signature_of<rwkv7_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .layout_of = &declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>,
    });

// Where a kernel finds them.

constexpr kernel kernel_defaults() noexcept {
  return {.decay_has_channels = true};
}

/// `read` and `write` are the tensors of the low-rank update.
consteval auto bindings_with(std::string_view read, std::string_view write, std::string_view d_read,
                             std::string_view d_write) {
  return declared::bindings_in(
      std::array{
          rows_at("r", offsetof(kernel, q), "HV"),
          rows_at("w", offsetof(kernel, decay), "HV"),
          rows_at("k", offsetof(kernel, k), "HV"),
          rows_at("v", offsetof(kernel, v), "HV"),
          rows_at(read, offsetof(kernel, read), "HV"),
          rows_at(write, offsetof(kernel, write), "HV"),
          rows_at("out", offsetof(kernel, out), "HV"),
          rows_at("d_out", offsetof(kernel, d_out), "HV"),
          rows_at("d_r", offsetof(kernel, d_q), "HV"),
          rows_at("d_w", offsetof(kernel, d_decay), "HV"),
          rows_at("d_k", offsetof(kernel, d_k), "HV"),
          rows_at("d_v", offsetof(kernel, d_v), "HV"),
          rows_at(d_read, offsetof(kernel, d_read), "HV"),
          rows_at(d_write, offsetof(kernel, d_write), "HV"),
          states_at("d_final_state", offsetof(kernel, d_last)),
          states_at("d_initial_state", offsetof(kernel, d_initial)),
          states_at("initial_state", offsetof(kernel, initial)),
          states_at("final_state", offsetof(kernel, last)),
          binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)},
          delta_rule_table::slots_at("state_indices"),
      },
      form);
}
inline constexpr auto bindings = bindings_with("a", "b", "d_a", "d_b");
inline constexpr auto multiplicative_bindings = bindings_with("kk", "a", "d_kk", "d_a");
inline constexpr auto sizes = declared::sizes_in(
    std::array{
        size_text{"N|B", offsetof(kernel, sequences)}, size_text{"T", offsetof(kernel, tokens)},
        size_text{"HV", offsetof(kernel, key_heads)},
        size_text{"HV", offsetof(kernel, value_heads)}, size_text{"K", offsetof(kernel, key_dim)},
        size_text{"V", offsetof(kernel, value_dim)}, size_text{"P", offsetof(kernel, slot_count)}},
    form);

template <delta_rule_update Update>
void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.update = Update;
  filled.scale = static_cast<float>(wanted.scale);
  filled.reverse = wanted.reverse;
}

inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish<delta_rule_update::low_rank>);
inline constexpr lowering lower_multiplicative = declared::lowering_of<kernel_defaults>(
    sizes, multiplicative_bindings, &finish<delta_rule_update::multiplicative>);

inline constexpr std::array operations{
    declared::operation_of("rwkv7", 0, form, lower,
                           "r! w! k! v! cu_seqlens a! b! initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("rwkv7_mul", 1, form, lower_multiplicative,
                           "r! w! k! v! cu_seqlens kk! a! initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("rwkv7_backward", 2, form, lower,
                           "r! w! k! v! cu_seqlens a! b! initial_state d_out! d_final_state d_r! "
                           "d_w! d_k! d_v! d_a! d_b! d_initial_state"),
    declared::operation_of("rwkv7_mul_backward", 3, form, lower_multiplicative,
                           "r! w! k! v! cu_seqlens kk! a! initial_state d_out! d_final_state d_r! "
                           "d_w! d_k! d_v! d_kk! d_a! d_initial_state"),
};

}  // namespace tessera::rwkv7_table
