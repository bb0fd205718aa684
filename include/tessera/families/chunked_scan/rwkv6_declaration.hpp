// RWKV-6, declared: tensors, dims, options, and where kernels find them. Kernels see r as q and w
// as the decay of key channels.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <tessera/families/chunked_scan/declaration.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::rwkv6_table {

using options = rwkv6_options;
using declared::state;
using recurrent_table::gradient_of;
using recurrent_table::gradient_of_decay;
using recurrent_table::rows_at;
using recurrent_table::states_at;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "slots"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "H", .label = "heads", .least = 1, .most = recurrent_table::most_heads},
    dim{.symbol = "K", .label = "head_dim", .least = 1, .most = recurrent_table::most_head_dim},
    dim{.symbol = "V", .label = "head_dim", .least = 1, .most = recurrent_table::most_head_dim},
};
inline constexpr std::array<std::string_view, 3> layouts{"dense", "packed", "pooled"};
inline constexpr texts of_states{"B H K V", "N H K V", "P H K V"};
inline constexpr texts of_keys{"B T H K", "1:batch T H K", "1:batch T H K"};
inline constexpr texts of_values{"B T H V", "1:batch T H V", "1:batch T H V"};
inline constexpr texts of_heads{"H K", "H K", "H K"};

using declared::operand;
constexpr tensor_text parameter(std::string_view name, const texts& shapes) {
  return {
      .name = name, .shapes = shapes, .types = dtype::f32, .like = "r", .contiguous_rows = true};
}

inline constexpr std::array tensor_texts{
    operand("r", of_keys),
    operand("k", of_keys, "r"),
    operand("v", of_values, "r"),
    parameter("w", of_keys),
    parameter("u", of_heads),
    state("initial_state", of_states),
    declared::packed_offsets({"-", "N+1", "N+1"}),
    declared::as_output(operand("out", of_values, "r")),
    declared::final_state(of_states),
    operand("d_out", of_values, "r"),
    state("d_final_state", of_states),
    gradient_of("r", "d_r", of_keys, false),
    gradient_of("k", "d_k", of_keys, false),
    gradient_of("v", "d_v", of_values, false),
    gradient_of_decay("w", "d_w", of_keys),
    gradient_of_decay("u", "d_u", of_heads),  // by the same kernel
    recurrent_table::gradient_of_state(of_states),
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
    option_form{.name = "raw_w", .offset = offsetof(options, raw_w), .free = true},
};

inline constexpr std::array rules{
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};

inline constexpr signature form =
    declared::signature_of<rwkv6_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .layout_of = &declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>,
    });

// Where a kernel finds them.

using kernel = chunked_scan_kernel_args;

inline constexpr std::array size_texts{
    size_text{"N|B", offsetof(kernel, sequences)}, size_text{"T", offsetof(kernel, tokens)},
    size_text{"H", offsetof(kernel, heads)},       size_text{"H", offsetof(kernel, kv_heads)},
    size_text{"K", offsetof(kernel, keys)},        size_text{"V", offsetof(kernel, values)},
    size_text{"P", offsetof(kernel, slot_count)}};
inline constexpr auto sizes = declared::sizes_in(size_texts, form);

inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_at("r", offsetof(kernel, q), "H"),
        rows_at("k", offsetof(kernel, k), "H"),
        rows_at("v", offsetof(kernel, v), "H"),
        rows_at("w", offsetof(kernel, gk), "H"),
        rows_at("u", offsetof(kernel, u), "H"),
        states_at("initial_state", offsetof(kernel, initial_state)),
        binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)},
        recurrent_table::slots_at("state_indices"),
        rows_at("out", offsetof(kernel, out), "H"),
        states_at("final_state", offsetof(kernel, final_state)),
        rows_at("d_out", offsetof(kernel, d_out), "H"),
        states_at("d_final_state", offsetof(kernel, d_final_state)),
        rows_at("d_r", offsetof(kernel, d_q), "H"),
        rows_at("d_k", offsetof(kernel, d_k), "H"),
        rows_at("d_v", offsetof(kernel, d_v), "H"),
        rows_at("d_w", offsetof(kernel, d_gk), "H"),
        rows_at("d_u", offsetof(kernel, d_u), "H"),
        states_at("d_initial_state", offsetof(kernel, d_initial_state)),
    },
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.scale = static_cast<float>(wanted.scale);
  filled.reverse = wanted.reverse;
  filled.raw_decay = wanted.raw_w;
}

inline constexpr lowering lower =
    declared::lowering_of<recurrent_table::kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("rwkv6", 0, form, lower,
                           "r! k! v! w! u! cu_seqlens initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("rwkv6_backward", 1, form, lower,
                           "r! k! v! w! u! cu_seqlens initial_state d_out! d_final_state d_r! d_k! "
                           "d_v! d_w d_u d_initial_state"),
};

}  // namespace tessera::rwkv6_table
