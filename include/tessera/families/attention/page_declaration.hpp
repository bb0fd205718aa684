// page_attention, declared: one token of each sequence against keys and values in pages of a pool.
// Kernels see sequences of one row with lengths, whose keys lie in pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/page_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::paged_table {

using declared::everywhere;
using options = page_attention_options;
using kernel = attention_kernel_args;
using namespace attention_table;  // NOLINT: what the operations of a family share

inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
inline constexpr std::array dims{
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "pages", .most = most},
    dim{.symbol = "T", .label = "page size", .least = 1, .most = most},
    dim{.symbol = "M", .label = "pages of a sequence", .most = most},
    query_heads,
    key_heads,
    head_dim_of_qk,
    head_dim_of_v,
};
inline constexpr std::array tensor_texts{
    first_operand("q", everywhere("N Hq D")),
    operand("k_pages", {"P Hkv T D", "Hkv P T D", "P T Hkv D"}),
    operand("v_pages", {"P Hkv T Dv", "Hkv P T Dv", "P T Hkv Dv"}, "k_pages"),
    tensor_text{.name = "block_table",
                .shapes = everywhere("N M"),
                .types = dtype::i32,
                .contiguous_rows = true,
                .holds = tensor_contents::page_numbers,
                .counts = "P",
                .used_by = "seqlens_k",
                .page = "T"},
    tensor_text{.name = "seqlens_k",
                .shapes = everywhere("N"),
                .types = dtype::i32,
                .contiguous_rows = true},
    result_of("out", everywhere("N Hq Dv")),
    statistic("lse", everywhere("N Hq")),
};
inline constexpr auto shapes = declared::shapes_in<page_layout_names.size()>(tensor_texts, dims);
inline constexpr auto tensors = declared::tensors_in(tensor_texts, shapes, dims);
inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    window_at("window_left", offsetof(options, window_left)),
    soft_cap_at(offsetof(options, logits_soft_cap)),
    option_form{.name = "pool_layout",
                .offset = offsetof(options, pool_layout),
                .type = option_type::choice,
                .enumerators = page_layout_names},
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline constexpr signature form = declared::signature_of<page_problem>({
    .tensors = tensors,
    .shapes = shapes,
    .dims = dims,
    .layouts = page_layout_names,
    .options = option_forms,
    .multiples = multiples,
    .layout_of = &declared::layout_named<&options::pool_layout>,
});

// Where a kernel finds them.

inline constexpr std::size_t pages = offsetof(kernel, pages);
inline constexpr kernel kernel_defaults{.sink_stride = 0, .q_len = 1};
inline constexpr auto sizes =
    declared::sizes_in(declared::with(head_sizes, size_text{"N", offsetof(kernel, batch)},
                                      size_text{"T", pages + offsetof(page_table, page_size)},
                                      size_text{"P", pages + offsetof(page_table, page_count)}),
                       form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "N", "", "Hq"),
        rows_of("k_pages", offsetof(kernel, k), offsetof(kernel, k_strides), "P", "T", "Hkv"),
        rows_of("v_pages", offsetof(kernel, v), offsetof(kernel, v_strides), "P", "T", "Hkv"),
        rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "N", "", "Hq"),
        statistics_of("lse", offsetof(kernel, lse), "N", ""),
        binding_text{"block_table",
                     pages + offsetof(page_table, numbers),
                     {{{"N", pages + offsetof(page_table, row)}}}},
        binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
    },
    form);

/// The row of a sequence stands at its last key, so that a mask is needed for windows only.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.kv_len = call.dims[declared::dim_named(dims, "M")] * filled.pages.page_size;
  filled.causal = wanted.window_left.has_value();
  set_scores(wanted, filled);
}

inline constexpr lowering lower{.bytes = sizeof(kernel),
                                .defaults = &kernel_defaults,
                                .sizes = sizes,
                                .bindings = bindings,
                                .finish = &finish};

inline constexpr std::array operations{
    declared::operation_of("page_attention", 0, form, lower,
                           "q! k_pages! v_pages! block_table! seqlens_k! out! lse"),
};

}  // namespace tessera::paged_table

namespace tessera {

/// Every operation of the family, whatever its tensors.
inline constexpr auto attention_operations =
    declared::joined(attention_table::operations, paged_table::operations);

}  // namespace tessera
