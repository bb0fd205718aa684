// The mean pooling operations, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::mean_pooling_table {

using options = mean_pooling_options;

inline mean_pooling_op op_of(const bound_call& call) noexcept {
  return static_cast<mean_pooling_op>(call.op->place);
}
constexpr std::int64_t chunks_of(std::int64_t tokens, std::int64_t chunk) noexcept {
  return tokens / chunk + (tokens % chunk != 0 ? 1 : 0);
}
/// Chunks restart in every sequence.
inline std::int64_t packed_chunks(const bound_call& call) {
  const tensor_view& offsets = call.tensors[2];
  const auto* const offset = static_cast<const std::int32_t*>(offsets.data);
  std::int64_t chunks = 0;
  for (std::int64_t n = 0; n + 1 < offsets.extent[0]; ++n) {
    chunks +=
        chunks_of(std::int64_t{offset[n + 1]} - offset[n], call.options_as<options>().chunk_size);
  }
  return chunks;
}

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "H", .label = "heads"},
    dim{.symbol = "D", .label = "columns"},
    dim{.symbol = "C",
        .label = "number of chunks",
        .source = dim_source::formula,
        .of = "T",
        .value =
            [](const bound_call& call) {
              return chunks_of(call.dims[1], call.options_as<options>().chunk_size);
            }},
    dim{.symbol = "P",
        .label = "number of chunks",
        .source = dim_source::contents,
        .value = &packed_chunks,
        .owner = "the list of all chunks in cu_seqlens"},
};

inline constexpr std::array<std::string_view, 4> layouts{"dense", "packed", "chunked dense",
                                                         "chunked packed"};
inline constexpr std::array<std::string_view, max_layouts> of_tokens{"B T D", "T D", "B T H D",
                                                                     "1:batch T H D"};
inline constexpr std::array<std::string_view, max_layouts> of_means{"B D", "N D", "B C H D",
                                                                    "1:batch P H D"};
inline constexpr std::array tensor_texts{
    tensor_text{.name = "x",
                .shapes = of_tokens,
                .types = floating_types,
                .contiguous_rows = true,
                .free = true},
    tensor_text{.name = "mask",
                .shapes = {"B T", "-", "-", "-"},
                .types = floating_types | dtype::u8,
                .elsewhere =
                    "is given with cu_seqlens; a mask belongs to dense tensors, packed ones "
                    "have no padding"},
    declared::packed_offsets({"-", "N+1", "-", "N+1"}),
    tensor_text{.name = "out",
                .shapes = of_means,
                .like = "x",
                .use = tensor_use::output,
                .contiguous_rows = true},
    tensor_text{.name = "d_out", .shapes = of_means, .like = "d_x", .contiguous_rows = true},
    tensor_text{.name = "d_x",
                .shapes = of_tokens,
                .types = floating_types,
                .use = tensor_use::output,
                .contiguous_rows = true,
                .gradient_of = "x"},
};

inline constexpr std::array option_forms{option_form{.name = "chunk_size",
                                                     .offset = offsetof(options, chunk_size),
                                                     .type = option_type::integer,
                                                     .limit = option_limit::at_least,
                                                     .least = 1}};

inline int layout_of(const bound_call& call) {
  return (has_chunks(op_of(call)) ? 2 : 0) + (call.has(2) ? 1 : 0);
}

inline constexpr signature form =
    declared::signature_of<mean_pooling_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .layout_of = &layout_of,
    });

using kernel = mean_pooling_kernel_args;
constexpr kernel kernel_defaults() noexcept {
  return {.heads = 1};
}
inline constexpr std::array<stride_text, 4> token_strides{
    {{"B", offsetof(kernel, token_strides.entry)},
     {"T", offsetof(kernel, token_strides.row)},
     {"H", offsetof(kernel, token_strides.head)}}};
inline constexpr std::array<stride_text, 4> mean_strides{
    {{"B", offsetof(kernel, mean_strides.entry)},
     {"C|P|N", offsetof(kernel, mean_strides.row)},
     {"H", offsetof(kernel, mean_strides.head)}}};
// Backward: x may be given and is not read; the gradients take its place.
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        binding_text{"x", offsetof(kernel, from), token_strides},
        binding_text{"out", offsetof(kernel, to), mean_strides},
        binding_text{"d_out", offsetof(kernel, from), mean_strides},
        binding_text{"d_x", offsetof(kernel, to), token_strides},
        binding_text{"mask",
                     offsetof(kernel, mask),
                     {{{"B", offsetof(kernel, mask_entry)}, {"T", offsetof(kernel, mask_token)}}},
                     offsetof(kernel, mask_type)},
        binding_text{"cu_seqlens", offsetof(kernel, cu_seqlens)}},
    form);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"N|B", offsetof(kernel, sequences)},
               size_text{"T", offsetof(kernel, tokens)}, size_text{"H", offsetof(kernel, heads)},
               size_text{"D", offsetof(kernel, columns)}},
    form);

/// Chunks, and heads that lie side by side: they are columns of one wide head.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  if (call.layout >= 2) {
    filled.chunk =
        std::min(call.options_as<options>().chunk_size, std::max<std::int64_t>(filled.tokens, 1));
  }
  // Of packed chunks in device memory only the tensor says how many means there is room for.
  const tensor_view& means = call.tensors[is_backward(op_of(call)) ? 4 : 3];
  filled.means = call.layout >= 2 ? means.extent[1] : call.layout == 1 ? means.extent[0] : 1;
  const bool wide = filled.heads == 1 || (filled.token_strides.head == filled.columns &&
                                          filled.mean_strides.head == filled.columns);
  if (!wide) return;
  filled.columns *= filled.heads;
  filled.heads = 1;
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("mean_pooling", 0, form, lower, "x! cu_seqlens out! mask", "chunk_size"),
    declared::operation_of("mean_pooling_chunks", 1, form, lower, "x! cu_seqlens out!"),
    declared::operation_of("mean_pooling_backward", 2, form, lower, "d_x! x cu_seqlens d_out! mask",
                           "chunk_size"),
    declared::operation_of("mean_pooling_chunks_backward", 3, form, lower,
                           "d_x! x cu_seqlens d_out!"),
};

}  // namespace tessera::mean_pooling_table

namespace tessera {

/// What its problems are to the engines.
template <>
struct operation_table<mean_pooling_op>
    : declared::operation_table_of<mean_pooling_problem, mean_pooling_kernel_args,
                                   mean_pooling_table::operations, mean_pooling_table::operations> {
};

}  // namespace tessera
