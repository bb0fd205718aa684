// The selection of blocks by itself, declared: tensors, dims, options, and where the kernels of
// native sparse attention find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/sparse_attention/block_selection_args.hpp>
#include <tessera/families/sparse_attention/block_selection_options.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_declaration.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::block_selection_table {

namespace shared = native_sparse_table;
using options = block_selection_options;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "Hq", .label = "heads", .least = 1, .most = shared::most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = shared::most_heads},
    dim{.symbol = "D", .label = "head_dim", .least = 1, .most = 256},
    shared::keys_of_queries,
    shared::count_of_blocks<options>,
};
static_assert(dims[1].symbol == "T", "keys are as many as queries");

/// What native sparse attention may be asked for besides is what this is for.
consteval tensor_text selected_blocks() {
  tensor_text text = shared::selected_blocks;
  text.free = false;
  return text;
}
inline constexpr std::array tensor_texts{shared::operand_texts[0], shared::operand_texts[1],
                                         shared::offsets, selected_blocks()};

consteval std::size_t tensor(std::string_view name) {
  return static_cast<std::size_t>(declared::tensor_named(tensor_texts, name));
}

inline constexpr std::array option_forms{
    shared::scale_at(offsetof(options, softmax_scale)),
    shared::count_at("block_size", offsetof(options, block_size)),
    shared::count_at("block_count", offsetof(options, block_count)),
    shared::count_at("first_blocks", offsetof(options, first_blocks), 0),
    shared::count_at("last_blocks", offsetof(options, last_blocks)),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline int layout_of(const bound_call& call) {
  return call.has(tensor("cu_seqlens")) ? 1 : 0;
}

inline constexpr signature form =
    declared::signature_of<block_selection_problem, tensor_texts, dims, shared::layouts>({
        .options = option_forms,
        .multiples = multiples,
        .layout_of = &layout_of,
    });

// Where a kernel finds them. Without outputs it attends to nothing.

using kernel = native_sparse_kernel_args;
inline constexpr auto bindings = declared::bindings_in(
    std::array{shared::rows_at("q", shared::at(offsetof(kernel, q))),
               shared::rows_at("k", shared::at(offsetof(kernel, k))), shared::offsets_binding,
               shared::slots_at("selected_blocks", shared::at(offsetof(kernel, selected)), "C")},
    form);
inline constexpr auto sizes = declared::sizes_in(shared::query_sizes, form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<shared::kernel_args*>(to)->native_sparse;
  const options& wanted = call.options_as<options>();
  shared::finish_selection(wanted, filled);
  filled.first_blocks = wanted.first_blocks;
  filled.last_blocks = wanted.last_blocks;
}

inline constexpr lowering lower =
    declared::lowering_of<shared::kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("block_selection", 0, form, lower, "q! cu_seqlens k! selected_blocks!")};

}  // namespace tessera::block_selection_table
