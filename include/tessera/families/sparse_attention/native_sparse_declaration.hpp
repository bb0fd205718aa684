// Native sparse attention and its gradients, declared: tensors, dims, options, and where kernels
// find them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/option_forms.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::native_sparse_table {

using options = native_sparse_attention_options;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::int64_t most_heads = std::numeric_limits<int>::max();
/// Keys are as many as queries: what a call costs grows with the product of both.
inline constexpr dim keys_of_queries{.symbol = "Tk",
                                     .label = "length",
                                     .source = dim_source::formula,
                                     .of = "T",
                                     .value = [](const bound_call& call) { return call.dims[1]; }};
/// Slots of a selection by scores.
template <class Options>
inline constexpr dim count_of_blocks{
    .symbol = "C",
    .label = "block_count",
    .source = dim_source::formula,
    .of = "T",
    .value = [](const bound_call& call) { return call.options_as<Options>().block_count; }};
inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "D", .label = "head_dim", .least = 1, .most = 256},
    dim{.symbol = "Dv", .label = "head_dim", .least = 1, .most = 256},
    dim{.symbol = "S", .label = "number of slots"},
    keys_of_queries,
    count_of_blocks<options>,
};
consteval std::size_t dim_of(std::string_view symbol) {
  return static_cast<std::size_t>(declared::dim_named(dims, symbol));
}

static_assert(dim_of("T") == 1);

inline constexpr std::array<std::string_view, 2> layouts{"dense", "packed"};
inline constexpr texts of_queries{"B T Hq D", "1:batch T Hq D"};
inline constexpr texts of_keys{"B Tk Hkv D", "1:batch Tk Hkv D"};
inline constexpr texts of_values{"B Tk Hkv Dv", "1:batch Tk Hkv Dv"};
inline constexpr texts of_outputs{"B T Hq Dv", "1:batch T Hq Dv"};
inline constexpr texts of_gates{"B T Hq", "1:batch T Hq"};
inline constexpr texts of_slots{"B T Hkv S", "1:batch T Hkv S"};

using declared::operand;
constexpr tensor_text gate(std::string_view name) {
  return {.name = name, .shapes = of_gates, .types = dtype::f32, .like = "q", .free = true};
}
constexpr tensor_text slots(std::string_view name) {
  return {.name = name, .shapes = of_slots, .types = dtype::i32, .free = true};
}
using declared::as_unaligned_output;
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  if (text.types.has(dtype::f32)) {
    text.types = floating_types;
    text.like = {};
  }
  return as_unaligned_output(text, of);
}
inline constexpr std::array operand_texts{
    operand("q", of_queries),
    operand("k", of_keys, "q"),
    operand("v", of_values, "q"),
    gate("g_slc"),
    gate("g_cmp"),
    gate("g_swa"),
};
inline constexpr tensor_text counts{.name = "block_counts",
                                    .shapes = {"B T Hkv", "1:batch T Hkv"},
                                    .types = dtype::i32,
                                    .free = true};
inline constexpr tensor_text offsets = declared::packed_offsets({"-", "N+1"});
inline constexpr tensor_text selected_blocks{.name = "selected_blocks",
                                             .shapes = {"B T Hkv C", "1:batch T Hkv C"},
                                             .types = dtype::i32,
                                             .use = tensor_use::output,
                                             .free = true,
                                             .file_name = "block_indices"};
inline constexpr auto tensor_texts =
    declared::with(operand_texts, slots("block_indices"), counts, offsets,
                   as_unaligned_output(operand("out", of_outputs, "q")), selected_blocks);
consteval tensor_text selection() {
  tensor_text text = slots("selected_blocks");
  text.file_name = "block_indices";
  return text;
}
inline constexpr auto backward_texts = declared::with(
    operand_texts, selection(), counts, offsets, operand("d_out", of_outputs, "q"),
    gradient_of("q", operand("d_q", of_queries, "q")),
    gradient_of("k", operand("d_k", of_keys, "q")),
    gradient_of("v", operand("d_v", of_values, "q")), gradient_of("g_slc", gate("d_g_slc")),
    gradient_of("g_cmp", gate("d_g_cmp")), gradient_of("g_swa", gate("d_g_swa")));

consteval std::size_t tensor(std::string_view name) {
  return static_cast<std::size_t>(declared::tensor_named(tensor_texts, name));
}
consteval std::size_t backward_tensor(std::string_view name) {
  return static_cast<std::size_t>(declared::tensor_named(backward_texts, name));
}
static_assert(tensor("cu_seqlens") == backward_tensor("cu_seqlens"));

consteval option_form scale_at(std::size_t offset) {
  return attention_table::softmax_scale_at(offset);
}
consteval option_form count_at(std::string_view name, std::size_t offset, std::int64_t least = 1) {
  return {.name = name,
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::integer,
          .limit = option_limit::at_least,
          .least = least,
          .free = true};
}
inline constexpr std::array option_forms{
    scale_at(offsetof(options, softmax_scale)),
    count_at("block_size", offsetof(options, block_size)),
    count_at("block_count", offsetof(options, block_count)),
    attention_table::free_option(
        attention_table::window_at("window_left", offsetof(options, window_left))),
};

/// A tensor that is given only with another, or only without it.
template <std::size_t Tensor, std::size_t Other, bool With = true>
consteval tensor_rule only(std::string_view sentence) {
  return {static_cast<std::int8_t>(Tensor),
          [](const bound_call& call) { return call.has(Other) == With; }, sentence};
}
inline constexpr std::array rules{
    only<tensor("block_counts"), tensor("block_indices")>("is given, block_indices is absent"),
    only<tensor("selected_blocks"), tensor("block_indices"), false>(
        "is given with block_indices, which say what is selected"),
};
inline constexpr std::array backward_rules{
    only<backward_tensor("d_g_slc"), backward_tensor("g_slc")>("is given, g_slc is absent"),
    only<backward_tensor("d_g_cmp"), backward_tensor("g_cmp")>("is given, g_cmp is absent"),
    only<backward_tensor("d_g_swa"), backward_tensor("g_swa")>("is given, g_swa is absent"),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline int layout_of(const bound_call& call) {
  return call.has(tensor("cu_seqlens")) ? 1 : 0;
}

inline constexpr signature form =
    declared::signature_of<native_sparse_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
    });
inline constexpr signature backward_form =
    declared::signature_of<native_sparse_backward_problem, backward_texts, dims, layouts>({
        .options = option_forms,
        .rules = backward_rules,
        .multiples = multiples,
        .layout_of = &layout_of,
    });

// Where a kernel finds them.

using kernel_args = sparse_attention_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<kernel_args>;
consteval std::size_t at(std::size_t member) {
  return offsetof(kernel_args, native_sparse) + member;
}
using kernel = native_sparse_kernel_args;

consteval binding_text rows_at(std::string_view name, std::size_t to) {
  return {name,
          to + offsetof(sparse_rows, data),
          {{{"B", to + offsetof(sparse_rows, entry)},
            {"Hq|Hkv", to + offsetof(sparse_rows, head)},
            {"T|Tk", to + offsetof(sparse_rows, token)}}},
          to + offsetof(sparse_rows, type)};
}
consteval binding_text slots_at(std::string_view name, std::size_t to,
                                std::string_view slot_dims = "S|C") {
  return {name,
          to + offsetof(sparse_slots, data),
          {{{"B", to + offsetof(sparse_slots, entry)},
            {"Hkv", to + offsetof(sparse_slots, head)},
            {"T", to + offsetof(sparse_slots, token)},
            {slot_dims, to + offsetof(sparse_slots, slot)}}}};
}
inline constexpr binding_text offsets_binding{
    "cu_seqlens", at(offsetof(kernel, sequences) + offsetof(sparse_sequences, begin))};
inline constexpr std::array operand_bindings{
    rows_at("q", at(offsetof(kernel, q))),
    rows_at("k", at(offsetof(kernel, k))),
    rows_at("v", at(offsetof(kernel, v))),
    rows_at("g_slc", at(offsetof(kernel, g_slc))),
    rows_at("g_cmp", at(offsetof(kernel, g_cmp))),
    rows_at("g_swa", at(offsetof(kernel, g_swa))),
    slots_at("block_counts", at(offsetof(kernel, block_counts))),
    offsets_binding,
};
inline constexpr auto bindings = declared::bindings_in(
    declared::with(operand_bindings, slots_at("block_indices", at(offsetof(kernel, given))),
                   rows_at("out", at(offsetof(kernel, out))),
                   slots_at("selected_blocks", at(offsetof(kernel, selected)))),
    form);
inline constexpr auto backward_bindings = declared::bindings_in(
    declared::with(
        operand_bindings, slots_at("selected_blocks", at(offsetof(kernel, given))),
        rows_at("d_out", at(offsetof(kernel, d_out))), rows_at("d_q", at(offsetof(kernel, d_q))),
        rows_at("d_k", at(offsetof(kernel, d_k))), rows_at("d_v", at(offsetof(kernel, d_v))),
        rows_at("d_g_slc", at(offsetof(kernel, d_g_slc))),
        rows_at("d_g_cmp", at(offsetof(kernel, d_g_cmp))),
        rows_at("d_g_swa", at(offsetof(kernel, d_g_swa)))),
    backward_form);
inline constexpr std::array query_sizes{
    size_text{"N|B", at(offsetof(kernel, sequences) + offsetof(sparse_sequences, count))},
    size_text{"T", at(offsetof(kernel, sequences) + offsetof(sparse_sequences, tokens))},
    size_text{"Hq", at(offsetof(kernel, q_heads))},
    size_text{"Hkv", at(offsetof(kernel, kv_heads))},
    size_text{"D", at(offsetof(kernel, head_dim))}};
inline constexpr auto size_texts =
    declared::with(query_sizes, size_text{"Dv", at(offsetof(kernel, v_head_dim))},
                   size_text{"S", at(offsetof(kernel, slots))});
inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto backward_sizes = declared::sizes_in(size_texts, backward_form);

/// Of options that say how blocks are selected.
template <class Options>
void finish_selection(const Options& wanted, kernel& filled) {
  const double root = std::sqrt(static_cast<double>(filled.head_dim));
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0 / root));
  // A block longer than all tokens is one that never ends.
  filled.block_size = std::min(wanted.block_size, filled.sequences.tokens + 1);
  filled.block_count = wanted.block_count;
}
inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<kernel_args*>(to)->native_sparse;
  const options& wanted = call.options_as<options>();
  finish_selection(wanted, filled);
  filled.window_left =
      std::min(wanted.window_left.value_or(filled.sequences.tokens), filled.sequences.tokens);
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);
inline constexpr lowering backward_lower =
    declared::lowering_of<kernel_defaults>(backward_sizes, backward_bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("native_sparse_attention", 0, form, lower,
                           "q! cu_seqlens k! v! g_slc g_cmp g_swa block_indices block_counts out! "
                           "selected_blocks")};
inline constexpr std::array backward_operations{declared::operation_of(
    "native_sparse_attention_backward", 0, backward_form, backward_lower,
    "q! cu_seqlens k! v! g_slc g_cmp g_swa selected_blocks! block_counts d_out! d_q! d_k! d_v! "
    "d_g_slc d_g_cmp d_g_swa")};

}  // namespace tessera::native_sparse_table
