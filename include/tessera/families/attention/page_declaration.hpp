// page_attention, declared: one token of each sequence against keys and values in pages of a pool.
// Kernels see sequences of one row with lengths, whose keys lie in pages.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/page_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::paged_table {

using args = page_attention_args;
using options = page_attention_options;
using kernel = attention_kernel_args;
using namespace attention_table;  // NOLINT: what the operations of a family share

inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
inline constexpr std::array dims{
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "pages", .most = most},
    dim{.symbol = "T", .label = "page size", .least = 1, .most = most},
    dim{.symbol = "M", .label = "pages of a sequence", .most = most},
    dim{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "D", .label = "head_dim", .least = 1, .most = max_head_dim},
    dim{.symbol = "Dv", .label = "head_dim", .least = 1, .most = max_head_dim},
};
inline constexpr std::array<std::string_view, 3> layouts{"PHTD", "HPTD", "PTHD"};

/// A tensor of the same shape in every layout.
constexpr texts everywhere(std::string_view shape) {
  return {shape, shape, shape};
}

inline constexpr std::array tensor_texts{
    tensor_text{.name = "q",
                .shapes = everywhere("N Hq D"),
                .types = floating_types,
                .contiguous_rows = true,
                .aligned_rows = true},
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
    tensor_text{.name = "out",
                .shapes = everywhere("N Hq Dv"),
                .like = "q",
                .use = tensor_use::output,
                .contiguous_rows = true},
    tensor_text{.name = "lse",
                .shapes = everywhere("N Hq"),
                .types = dtype::f32,
                .use = tensor_use::output,
                .free = true},
};
inline constexpr auto shapes = declared::shapes_in<layouts.size()>(tensor_texts, dims);
inline constexpr auto tensors = declared::tensors_in(tensor_texts, shapes, dims);
static_assert(sizeof(args) == tensors.size() * sizeof(tensor_view));

inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    window_at("window_left", offsetof(options, window_left)),
    soft_cap_at(offsetof(options, logits_soft_cap)),
    option_form{.name = "pool_layout",
                .offset = offsetof(options, pool_layout),
                .type = option_type::choice,
                .enumerators = layouts},
};
inline constexpr options defaults{};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline constexpr signature form{
    .tensors = tensors,
    .shapes = shapes,
    .dims = dims,
    .layouts = layouts,
    .options = option_forms,
    .default_options = &defaults,
    .multiples = multiples,
    .layout_of =
        [](const bound_call& call) {
          return static_cast<int>(call.options_as<options>().pool_layout);
        },
    .options_bytes = sizeof(options),
    .demand_of =
        [](const problem_view& problem, demand& to) {
          to = demand(tessera::demand_of(*reinterpret_cast<const args*>(problem.tensors),
                                         *static_cast<const options*>(problem.options),
                                         problem.unaligned));
        },
};

// Where a kernel finds them.

inline constexpr kernel kernel_defaults{.sink_stride = 0, .q_len = 1};
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"N", offsetof(kernel, batch)},
               size_text{"T", offsetof(kernel, pages) + offsetof(page_table, page_size)},
               size_text{"P", offsetof(kernel, pages) + offsetof(page_table, page_count)},
               size_text{"Hq", offsetof(kernel, q_heads), sizeof(int)},
               size_text{"Hkv", offsetof(kernel, kv_heads), sizeof(int)},
               size_text{"D", offsetof(kernel, head_dim), sizeof(int)},
               size_text{"Dv", offsetof(kernel, v_head_dim), sizeof(int)}},
    form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "N", "", "Hq"),
        rows_of("k_pages", offsetof(kernel, k), offsetof(kernel, k_strides), "P", "T", "Hkv"),
        rows_of("v_pages", offsetof(kernel, v), offsetof(kernel, v_strides), "P", "T", "Hkv"),
        rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "N", "", "Hq"),
        statistics_of("lse", offsetof(kernel, lse), "N", ""),
        binding_text{"block_table",
                     offsetof(kernel, pages) + offsetof(page_table, numbers),
                     {{{"N", offsetof(kernel, pages) + offsetof(page_table, row)}}}},
        binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
    },
    form);

/// The row of a sequence stands at its last key, so that a mask is needed for windows only.
inline void finish_pages(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.kv_len = call.dims[declared::dim_named(dims, "M")] * filled.pages.page_size;
  filled.softmax_scale = scale_of(wanted.softmax_scale, filled.head_dim);
  filled.causal = wanted.window_left.has_value();
  filled.window_left = wanted.window_left.value_or(unbounded);
  filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0.0));
}

inline constexpr lowering lower{.bytes = sizeof(kernel),
                                .defaults = &kernel_defaults,
                                .sizes = sizes,
                                .bindings = bindings,
                                .finish = &finish_pages};

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
