// fp8_attention, declared: q, k and v of f8_e4m3 with scales of heads, out of 16 bits.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/fp8_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::fp8_table {

using options = fp8_attention_options;
using kernel = attention_kernel_args;
using namespace attention_table;  // NOLINT: what the operations of a family share

constexpr tensor_text codes(std::string_view name, const texts& shapes, std::string_view like = {},
                            std::string_view shape_of = {}) {
  return {.name = name,
          .shapes = shapes,
          .types = like.empty() ? dtype_set(dtype::f8_e4m3) : dtype_set(),
          .like = like,
          .contiguous_rows = true,
          .aligned_rows = true,
          .shape_of = shape_of};
}
constexpr tensor_text scales_of_heads(std::string_view name) {
  return {.name = name,
          .shapes = {"Hkv", "Hkv"},
          .types = dtype::f32,
          .contiguous_rows = true,
          .free = true};
}
inline constexpr std::array tensor_texts{
    codes("q", {"B Sq Hq D", "Sq Hq D"}),
    codes("k", {"B Sk Hkv D", "Sk Hkv D"}, "q"),
    codes("v", {"B Sk Hkv Dv", "Sk Hkv Dv"}, "q", "k"),
    scales_of_heads("q_scales"),
    scales_of_heads("k_scales"),
    scales_of_heads("v_scales"),
    tensor_text{.name = "sinks", .shapes = {"Hq? n", "Hq? n"}, .types = dtype::f32},
    offsets("cu_seqlens_q", "N+1", "Sq", "Lq"),
    offsets("cu_seqlens_k", "N+1:length", "Sk", "Lk"),
    lengths("seqlens_q", "Sq"),
    lengths("seqlens_k", "Sk"),
    tensor_text{.name = "out",
                .shapes = {"B Sq Hq Dv", "Sq Hq Dv"},
                .types = dtype::bf16 | dtype::f16,
                .use = tensor_use::output,
                .contiguous_rows = true},
    statistic("lse", of_statistics),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}
inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(options, causal)},
    causal_alignment_at(offsetof(options, causal_alignment)),
    window_at("window_left", offsetof(options, window_left)),
    window_at("window_right", offsetof(options, window_right)),
};

inline bool hook(const bound_call& call, status& failure) {
  return has_both_offsets(call, tensor("cu_seqlens_q"), tensor("cu_seqlens_k"), failure);
}
inline int layout_of(const bound_call& call) {
  return layout_by_offsets(call, tensor("cu_seqlens_q"), tensor("cu_seqlens_k"));
}

/// The type of out, which is that of its view.
inline constexpr std::array<std::string_view, 1> remarks{"out_dtype"};

inline constexpr signature form = declared::signature_of<fp8_problem, tensor_texts, dims, layouts>({
    .options = option_forms,
    .remarks = remarks,
    .multiples = multiples,
    .layout_of = &layout_of,
    .hook = &hook,
});

// Where a kernel finds them.

inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "B", "Sq", "Hq"),
        rows_of("k", offsetof(kernel, k), offsetof(kernel, k_strides), "B", "Sk", "Hkv"),
        rows_of("v", offsetof(kernel, v), offsetof(kernel, v_strides), "B", "Sk", "Hkv"),
        binding_text{"q_scales", offsetof(kernel, q_scales)},
        binding_text{"k_scales", offsetof(kernel, k_scales)},
        binding_text{"v_scales", offsetof(kernel, v_scales)},
        sinks_at(offsetof(kernel, sinks)),
        binding_text{"cu_seqlens_q", offsetof(kernel, cu_seqlens_q)},
        binding_text{"cu_seqlens_k", offsetof(kernel, cu_seqlens_k)},
        binding_text{"seqlens_q", offsetof(kernel, seqlens_q)},
        binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
        rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "B", "Sq", "Hq"),
        statistics_of("lse", offsetof(kernel, lse), "B", "Sq"),
    },
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  set_scores(wanted, filled);
  set_causality(wanted, filled);
  filled.out_type = call.tensors[tensor("out")].type;
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("fp8_attention", 0, form, lower,
                           "q! k! v! out! q_scales k_scales v_scales cu_seqlens_q cu_seqlens_k lse "
                           "sinks seqlens_q seqlens_k"),
};

}  // namespace tessera::fp8_table
