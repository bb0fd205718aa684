// rwkv4, declared: tensors, dims, and where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/rwkv4_args.hpp>
#include <tessera/families/selective_scan/rwkv4_options.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::rwkv4_table {

using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "S", .label = "sequences"},
    dim{.symbol = "P", .label = "slots"},
    dim{.symbol = "C", .label = "channels"},
    dim{.symbol = "R",
        .label = "sums",
        .source = dim_source::formula,
        .of = "C",
        .value = [](const bound_call&) { return std::int64_t{3}; }},
};
inline constexpr std::array<std::string_view, 3> layouts{"dense", "packed", "pooled"};

inline constexpr texts of_tokens{"B T C", "1:batch T C", "1:batch T C"};
inline constexpr texts of_channels{"C", "C", "C"};
inline constexpr texts of_states{"B R C", "S R C", "P R C"};

constexpr tensor_text parameter(std::string_view name) {
  return {.name = name, .shapes = of_channels, .types = dtype::f32, .like = "k"};
}
constexpr tensor_text like_tokens(std::string_view name) {
  return {.name = name, .shapes = of_tokens, .like = "k", .contiguous_rows = true};
}
constexpr tensor_text states(std::string_view name) {
  return declared::state(name, of_states, false);
}
/// Of the type of what it belongs to, which a parameter has by itself.
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  text.use = tensor_use::output;
  text.gradient_of = of;
  if (text.types.has(dtype::f32) && !text.like.empty()) {
    text.types = floating_types;
    text.like = {};
  }
  return text;
}

inline constexpr std::array tensor_texts{
    tensor_text{.name = "k", .shapes = of_tokens, .types = floating_types, .contiguous_rows = true},
    like_tokens("v"),
    parameter("w"),
    parameter("u"),
    states("initial_state"),
    declared::packed_offsets({"-", "S+1", "S+1"}),
    tensor_text{.name = "out",
                .shapes = of_tokens,
                .like = "k",
                .use = tensor_use::output,
                .contiguous_rows = true},
    declared::final_state(of_states, false),
    like_tokens("d_out"),
    states("d_final_state"),
    gradient_of("k", like_tokens("d_k")),
    gradient_of("v", like_tokens("d_v")),
    gradient_of("w", parameter("d_w")),
    gradient_of("u", parameter("d_u")),
    gradient_of("initial_state", states("d_initial_state")),
    declared::pool_slots({"-", "-", "S"}, "P"),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array rules{
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};

inline int layout_of(const bound_call& call) {
  return declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>(call);
}

inline constexpr signature form =
    declared::signature_of<rwkv4_problem, tensor_texts, dims, layouts>({
        .options = {},
        .rules = rules,
        .layout_of = &layout_of,
    });

// Where a kernel finds them.

using kernel = rwkv4_kernel_args;
inline constexpr std::size_t base = offsetof(selective_scan_kernel_args, rwkv4);
inline constexpr auto kernel_defaults = &declared::plain_args<selective_scan_kernel_args>;

consteval binding_text rows_at(std::string_view name, std::size_t at) {
  at += offsetof(selective_scan_kernel_args, rwkv4);
  return {name,
          at + offsetof(channel_rows, data),
          {{{"P|B|S", at + offsetof(channel_rows, entry)},
            {"T|R", at + offsetof(channel_rows, row)},
            {"C", at + offsetof(channel_rows, channel)}}},
          at + offsetof(channel_rows, type)};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{rows_at("k", offsetof(kernel, k)), rows_at("v", offsetof(kernel, v)),
               rows_at("out", offsetof(kernel, out)), rows_at("w", offsetof(kernel, w)),
               rows_at("u", offsetof(kernel, u)),
               rows_at("initial_state", offsetof(kernel, initial_state)),
               rows_at("final_state", offsetof(kernel, final_state)),
               rows_at("d_out", offsetof(kernel, d_out)),
               rows_at("d_final_state", offsetof(kernel, d_final_state)),
               rows_at("d_k", offsetof(kernel, d_k)), rows_at("d_v", offsetof(kernel, d_v)),
               rows_at("d_w", offsetof(kernel, d_w)), rows_at("d_u", offsetof(kernel, d_u)),
               rows_at("d_initial_state", offsetof(kernel, d_initial_state)),
               binding_text{"cu_seqlens", base + offsetof(kernel, sequences.cu_seqlens)},
               binding_text{"state_indices",
                            base + offsetof(kernel, sequences.slots),
                            {{{"S", base + offsetof(kernel, sequences.slot_stride)}}}}},
    form);
inline constexpr auto sizes =
    declared::sizes_in(std::array{size_text{"S|B", base + offsetof(kernel, sequences.count)},
                                  size_text{"T", base + offsetof(kernel, sequences.tokens)},
                                  size_text{"C", base + offsetof(kernel, channels)},
                                  size_text{"P", base + offsetof(kernel, sequences.slot_count)}},
                       form);

/// Everything has a place of its own.
inline void finish(const bound_call&, void*) {}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("rwkv4", 0, form, lower,
                           "k! cu_seqlens v! w! u! initial_state out! final_state state_indices"),
    declared::operation_of("rwkv4_backward", 1, form, lower,
                           "k! cu_seqlens v! w! u! initial_state d_out! d_final_state d_k! d_v! "
                           "d_w! d_u! d_initial_state"),
};

}  // namespace tessera::rwkv4_table
