// ragged_decode_attention, declared: one token of each entry against a range of the entry's keys.
// Kernels see entries of one row whose keys begin and end where the ranges say.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/ragged_decode_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::ragged_decode_table {

using options = ragged_decode_options;
using kernel = attention_kernel_args;
using namespace attention_table;  // NOLINT: what the operations of a family share

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "S", .label = "length"},
    query_heads,
    key_heads,
    head_dim_of_qk,
    head_dim_of_v,
    dim{.symbol = "n", .label = "number of sinks", .most = most_heads},
};
inline constexpr std::array<std::string_view, 1> layouts{"dense"};
/// Any number is legal: keys outside the tensor are nobody's.
constexpr tensor_text bound_of_keys(std::string_view name) {
  return {.name = name, .shapes = {"B"}, .types = dtype::i32, .contiguous_rows = true};
}
inline constexpr std::array tensor_texts{
    first_operand("q", {"B Hq D"}),
    operand("k", {"B S Hkv D"}),
    operand("v", {"B S Hkv Dv"}, "k"),
    bound_of_keys("kv_start"),
    bound_of_keys("kv_end"),
    tensor_text{.name = "sinks", .shapes = {"Hq? n"}, .types = dtype::f32},
    result_of("out", {"B Hq Dv"}),
    statistic("lse", {"B Hq"}),
};
inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    window_at("window_left", offsetof(options, window_left)),
    window_at("window_right", offsetof(options, window_right)),
    soft_cap_at(offsetof(options, logits_soft_cap)),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline constexpr signature form =
    declared::signature_of<ragged_decode_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .multiples = multiples,
    });

// Where a kernel finds them.

constexpr kernel kernel_defaults() noexcept {
  return {.sink_stride = 0, .q_len = 1};
}
inline constexpr auto sizes =
    declared::sizes_in(declared::with(head_sizes, size_text{"B", offsetof(kernel, batch)},
                                      size_text{"S", offsetof(kernel, kv_len)},
                                      size_text{"n", offsetof(kernel, sink_count), sizeof(int)}),
                       form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "B", "", "Hq"),
        rows_of("k", offsetof(kernel, k), offsetof(kernel, k_strides), "B", "S", "Hkv"),
        rows_of("v", offsetof(kernel, v), offsetof(kernel, v_strides), "B", "S", "Hkv"),
        rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "B", "", "Hq"),
        statistics_of("lse", offsetof(kernel, lse), "B", ""),
        sinks_at(offsetof(kernel, sinks)),
        binding_text{"kv_start", offsetof(kernel, kv_start)},
        binding_text{"kv_end", offsetof(kernel, kv_end)},
    },
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  set_scores(wanted, filled);
  filled.window_right = wanted.window_right.value_or(unbounded);
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("ragged_decode_attention", 0, form, lower,
                           "q! k! v! kv_start! kv_end! out! sinks lse"),
};

}  // namespace tessera::ragged_decode_table
