// The operations of linear attention with decay on q, k and v, declared: tensors, dims, options,
// and where kernels find them. A layout is dense or packed, with one g_gamma for all or one for
// each sequence.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <tessera/families/chunked_scan/args.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/options.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::recurrent_table {

using declared::state;
using options = recurrent_options;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::int64_t most_heads = std::int64_t{1} << 20;
inline constexpr std::int64_t most_head_dim = 4096;
inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "slots"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "H", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "K", .label = "head_dim", .least = 1, .most = most_head_dim},
    dim{.symbol = "V", .label = "head_dim", .least = 1, .most = most_head_dim},
};

inline constexpr std::array<std::string_view, 6> layouts{
    "dense", "packed", "pooled", "per-entry dense", "per-sequence packed", "per-sequence pooled"};
constexpr texts of_layouts(std::string_view dense, std::string_view packed,
                           std::string_view pooled) {
  return {dense, packed, pooled, dense, packed, pooled};
}
constexpr texts of_layouts(std::string_view dense, std::string_view packed) {
  return of_layouts(dense, packed, packed);
}
inline constexpr texts of_states = of_layouts("B H K V", "N H K V", "P H K V");
inline constexpr texts of_keys = of_layouts("B T H K", "1:batch T H K");
inline constexpr texts of_values = of_layouts("B T H V", "1:batch T H V");

using declared::operand;
/// Log decays are f32 or of the operands' type.
constexpr tensor_text decay(std::string_view name, const texts& shapes, bool contiguous = true) {
  return {.name = name,
          .shapes = shapes,
          .types = dtype::f32,
          .like = "q",
          .contiguous_rows = contiguous};
}

/// A gradient of the type of its tensor; those of operands are stored like outputs.
constexpr tensor_text gradient_of(std::string_view of, std::string_view name, const texts& shapes,
                                  bool free = true, bool contiguous = true) {
  return {.name = name,
          .shapes = shapes,
          .types = floating_types,
          .use = tensor_use::output,
          .contiguous_rows = contiguous,
          .aligned_rows = !free,
          .gradient_of = of,
          .free = free};
}
/// Of log decays of keys: rows keep states for it, so that a choice depends on it.
constexpr tensor_text gradient_of_decay(std::string_view of, std::string_view name,
                                        const texts& shapes, bool contiguous = true) {
  tensor_text text = gradient_of(of, name, shapes, true, contiguous);
  text.free = false;
  return text;
}
constexpr tensor_text gradient_of_state(const texts& shapes) {
  return declared::as_output(state("d_initial_state", shapes), "initial_state");
}

inline constexpr std::array tensor_texts{
    operand("q", of_keys),
    operand("k", of_layouts("B T Hkv K", "1:batch T Hkv K"), "q"),
    operand("v", of_layouts("B T Hkv V", "1:batch T Hkv V"), "q"),
    decay("g", of_layouts("B T H", "1:batch T H"), false),
    decay("gk", of_keys),
    decay("gv", of_values),
    tensor_text{
        .name = "g_gamma", .shapes = {"H", "H", "H", "B H", "N H", "N H"}, .types = dtype::f32},
    state("initial_state", of_states),
    declared::packed_offsets(of_layouts("-", "N+1")),
    declared::as_output(operand("out", of_values, "q")),
    declared::final_state(of_states),
    operand("d_out", of_values, "q"),
    state("d_final_state", of_states),
    gradient_of("q", "d_q", of_keys, false),
    gradient_of("k", "d_k", of_layouts("B T Hkv K", "1:batch T Hkv K"), false),
    gradient_of("v", "d_v", of_layouts("B T Hkv V", "1:batch T Hkv V"), false),
    gradient_of_decay("g", "d_g", of_layouts("B T H", "1:batch T H"), false),
    gradient_of_decay("gk", "d_gk", of_keys),
    gradient_of("gv", "d_gv", of_values),
    gradient_of_state(of_states),
    declared::pool_slots(of_layouts("-", "-", "N"), "P"),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array option_forms{
    option_form{.name = "scale",
                .offset = offsetof(options, scale),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "1/sqrt(K)",
                .free = true},
    option_form{.name = "reverse", .offset = offsetof(options, reverse), .free = true},
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "H"), declared::dim_named(dims, "Hkv")}};

/// There is no gradient of what is not there.
inline constexpr std::array rules{
    declared::goes_with<tensor("d_g"), tensor("g")>("is given, g is absent"),
    declared::goes_with<tensor("d_gk"), tensor("gk")>("is given, gk is absent"),
    declared::goes_with<tensor("d_gv"), tensor("gv")>("is given, gv is absent"),
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};

inline int layout_of(const bound_call& call) {
  const bool of_sequences =
      call.has(tensor("g_gamma")) && call.tensors[tensor("g_gamma")].rank == 2;
  return (of_sequences ? 3 : 0) +
         declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>(call);
}

/// Where the decays of a layer came from.
inline constexpr std::array<std::string_view, 2> remarks{"layer_idx", "num_layers"};

inline constexpr signature form =
    declared::signature_of<recurrent_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .remarks = remarks,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
    });

// Where a kernel finds them.

using kernel = chunked_scan_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

/// Where a tensor of rows goes that lies `at` bytes into the kernel args.
consteval binding_text rows_at(std::string_view name, std::size_t at,
                               std::string_view heads = "H|Hkv") {
  return {name,
          at + offsetof(chunked_scan_rows, data),
          {{{"B", at + offsetof(chunked_scan_rows, entry)},
            {"T", at + offsetof(chunked_scan_rows, token)},
            {heads, at + offsetof(chunked_scan_rows, head)}}},
          at + offsetof(chunked_scan_rows, type)};
}
consteval binding_text states_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(chunked_scan_states, data),
          {{{"P|B|N", at + offsetof(chunked_scan_states, sequence)},
            {"H", at + offsetof(chunked_scan_states, head)},
            {"K", at + offsetof(chunked_scan_states, key)}}}};
}

consteval binding_text slots_at(std::string_view name) {
  return {name,
          offsetof(chunked_scan_kernel_args, slots),
          {{{"N", offsetof(chunked_scan_kernel_args, slot_stride)}}}};
}

inline constexpr std::array size_texts{
    size_text{"N|B", offsetof(kernel, sequences)}, size_text{"T", offsetof(kernel, tokens)},
    size_text{"H", offsetof(kernel, heads)},       size_text{"Hkv", offsetof(kernel, kv_heads)},
    size_text{"K", offsetof(kernel, keys)},        size_text{"V", offsetof(kernel, values)},
    size_text{"P", offsetof(kernel, slot_count)}};
inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_at("q", offsetof(kernel, q)),
        rows_at("k", offsetof(kernel, k)),
        rows_at("v", offsetof(kernel, v)),
        rows_at("g", offsetof(kernel, g)),
        rows_at("gk", offsetof(kernel, gk)),
        rows_at("gv", offsetof(kernel, gv)),
        binding_text{
            "g_gamma",
            offsetof(kernel, g_gamma),
            {{{"B|N", offsetof(kernel, gamma_sequence)}, {"H", offsetof(kernel, gamma_head)}}}},
        states_at("initial_state", offsetof(kernel, initial_state)),
        binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)},
        slots_at("state_indices"),
        rows_at("out", offsetof(kernel, out)),
        states_at("final_state", offsetof(kernel, final_state)),
        rows_at("d_out", offsetof(kernel, d_out)),
        states_at("d_final_state", offsetof(kernel, d_final_state)),
        rows_at("d_q", offsetof(kernel, d_q)),
        rows_at("d_k", offsetof(kernel, d_k)),
        rows_at("d_v", offsetof(kernel, d_v)),
        rows_at("d_g", offsetof(kernel, d_g)),
        rows_at("d_gk", offsetof(kernel, d_gk)),
        rows_at("d_gv", offsetof(kernel, d_gv)),
        states_at("d_initial_state", offsetof(kernel, d_initial_state)),
    },
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.scale =
      static_cast<float>(wanted.scale.value_or(1.0 / std::sqrt(static_cast<double>(filled.keys))));
  filled.reverse = wanted.reverse;
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("recurrent", 0, form, lower,
                           "q! k! v! g gk gv cu_seqlens g_gamma initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("gla", 1, form, lower,
                           "q! k! v! gk cu_seqlens g_gamma initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("lightning_attn", 2, form, lower,
                           "q! k! v! cu_seqlens g_gamma! initial_state out! final_state "
                           "state_indices"),
    declared::operation_of("recurrent_backward", 3, form, lower,
                           "q! k! v! g gk gv cu_seqlens g_gamma initial_state d_out! d_final_state "
                           "d_q! d_k! d_v! d_g d_gk d_gv d_initial_state"),
    declared::operation_of("gla_backward", 4, form, lower,
                           "q! k! v! gk cu_seqlens g_gamma initial_state d_out! d_final_state d_q! "
                           "d_k! d_v! d_gk d_initial_state"),
    declared::operation_of("lightning_attn_backward", 5, form, lower,
                           "q! k! v! cu_seqlens g_gamma! initial_state d_out! d_final_state d_q! "
                           "d_k! d_v! d_initial_state"),
};

}  // namespace tessera::recurrent_table
