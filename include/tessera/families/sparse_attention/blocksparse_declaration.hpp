// Blocksparse attention and its gradients, declared: tensors, dims, options, and where kernels find
// them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/option_forms.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::blocksparse_table {

using attention_table::free_option;
using options = blocksparse_attention_options;
using texts = std::array<std::string_view, max_layouts>;

/// Blocks of `block` rows that hold `count`; at least 1 of each.
constexpr std::int64_t blocks_of(std::int64_t count, std::int64_t block) noexcept {
  return count <= 0 || block <= 0 ? 0 : (count - 1) / block + 1;
}

inline constexpr std::int64_t most_heads = std::numeric_limits<int>::max();
inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Sq", .label = "length"},
    dim{.symbol = "Sk", .label = "length"},
    dim{.symbol = "D", .label = "head_dim", .least = 1, .most = 256},
    dim{.symbol = "Dv", .label = "head_dim", .least = 1, .most = 256},
    dim{.symbol = "n", .label = "number of sinks", .most = most_heads},
    dim{.symbol = "Nq",
        .label = "blocks of rows",
        .source = dim_source::formula,
        .of = "Sq",
        .value =
            [](const bound_call& call) {
              return blocks_of(call.dims[3], call.options_as<options>().block_q);
            }},
    dim{.symbol = "Nk",
        .label = "blocks of keys",
        .source = dim_source::formula,
        .of = "Sk",
        .value =
            [](const bound_call& call) {
              return blocks_of(call.dims[4], call.options_as<options>().block_k);
            }},
};
consteval std::size_t dim_of(std::string_view symbol) {
  return static_cast<std::size_t>(declared::dim_named(dims, symbol));
}
static_assert(dim_of("Sq") == 3 && dim_of("Sk") == 4);

inline constexpr std::array<std::string_view, 1> layouts{"dense"};

using declared::operand;
constexpr tensor_text statistic(std::string_view name, bool free) {
  return {.name = name, .shapes = {"B Hq Sq"}, .types = dtype::f32, .free = free};
}
constexpr tensor_text numbers(std::string_view name, std::string_view shape) {
  return {.name = name, .shapes = {shape}, .types = dtype::i32, .free = true};
}
using declared::as_unaligned_output;
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  return as_unaligned_output(text, of);
}

inline constexpr tensor_text sinks{
    .name = "sinks", .shapes = {"Hq? n"}, .types = dtype::f32, .free = true};
inline constexpr std::array input_texts{
    operand("q", {"B Hq Sq D"}),
    operand("k", {"B Hkv Sk D"}, "q"),
    operand("v", {"B Hkv Sk Dv"}, "q"),
    numbers("q_segment_ids", "B Sq"),
    numbers("kv_segment_ids", "B Sk"),
    numbers("q_positions", "B Sq"),
    numbers("kv_positions", "B Sk"),
    tensor_text{
        .name = "mask", .shapes = {"B? Hq? Sq?:rows Sk?:keys"}, .types = dtype::u8, .free = true},
    tensor_text{.name = "block_mask", .shapes = {"B? Hq? Nq Nk"}, .types = dtype::u8, .free = true},
    sinks,
};
inline constexpr auto tensor_texts =
    declared::with(input_texts, as_unaligned_output(operand("out", {"B Hq Sq Dv"}, "q")),
                   as_unaligned_output(statistic("lse", true)));
inline constexpr auto backward_texts =
    declared::with(input_texts, operand("out", {"B Hq Sq Dv"}, "q"), statistic("lse", false),
                   operand("d_out", {"B Hq Sq Dv"}, "q"), statistic("d_lse", true),
                   gradient_of("q", operand("d_q", {"B Hq Sq D"}, "q")),
                   gradient_of("k", operand("d_k", {"B Hkv Sk D"}, "q")),
                   gradient_of("v", operand("d_v", {"B Hkv Sk Dv"}, "q")), gradient_of("sinks", [] {
                     tensor_text text = sinks;
                     text.name = "d_sinks";
                     return text;
                   }()));

/// Inputs of the forward call have the same numbers in both.
consteval std::size_t tensor(std::string_view name) {
  return static_cast<std::size_t>(declared::tensor_named(backward_texts, name));
}

consteval option_form count_at(std::string_view name, std::size_t offset, option_type type) {
  return {.name = name,
          .offset = static_cast<std::uint16_t>(offset),
          .type = type,
          .limit = option_limit::at_least,
          .least = 1,
          .unset = type == option_type::optional_integer ? "all positions" : "",
          .free = true};
}
inline constexpr std::array option_forms{
    attention_table::softmax_scale_at(offsetof(options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(options, causal), .free = true},
    free_option(attention_table::causal_alignment_at(offsetof(options, causal_alignment))),
    free_option(attention_table::window_at("window_left", offsetof(options, window_left))),
    free_option(attention_table::window_at("window_right", offsetof(options, window_right))),
    free_option(attention_table::soft_cap_at(offsetof(options, logits_soft_cap))),
    count_at("chunk_size", offsetof(options, chunk_size), option_type::optional_integer),
    count_at("block_q", offsetof(options, block_q), option_type::integer),
    count_at("block_k", offsetof(options, block_k), option_type::integer),
};

template <std::size_t Tensor, std::size_t With>
consteval tensor_rule needs(std::string_view sentence) {
  return {static_cast<std::int8_t>(Tensor), [](const bound_call& call) { return call.has(With); },
          sentence};
}
inline constexpr std::array rules{
    needs<tensor("kv_segment_ids"), tensor("q_segment_ids")>("is given, q_segment_ids is absent"),
};
inline constexpr std::array backward_rules =
    declared::with(rules, needs<tensor("d_sinks"), tensor("sinks")>("is given, sinks is absent"));
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

/// Positions of both or of neither; segments that serve for keys too.
inline bool hook(const bound_call& call, status& failure) {
  const bool of_q = call.has(tensor("q_positions"));
  if (of_q != call.has(tensor("kv_positions"))) {
    return checks::refuse(failure, of_q ? "kv_positions" : "q_positions", ": is absent, ",
                          of_q ? "q_positions" : "kv_positions",
                          " is given; positions of queries and keys are compared");
  }
  const std::int64_t rows = call.dims[dim_of("Sq")], keys = call.dims[dim_of("Sk")];
  if (call.has(tensor("q_segment_ids")) && !call.has(tensor("kv_segment_ids")) && rows != keys) {
    return checks::refuse(failure,
                          "kv_segment_ids: is absent, and q_segment_ids serve for keys only where "
                          "lengths are equal: q has ",
                          rows, ", k has ", keys);
  }
  return true;
}

inline int layout_of(const bound_call&) {
  return 0;
}

inline constexpr signature form =
    declared::signature_of<blocksparse_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
        .hook = &hook,
    });
inline constexpr signature backward_form =
    declared::signature_of<blocksparse_backward_problem, backward_texts, dims, layouts>({
        .options = option_forms,
        .rules = backward_rules,
        .multiples = multiples,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = blocksparse_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<sparse_attention_kernel_args>;
static_assert(offsetof(sparse_attention_kernel_args, blocksparse) == 0);

consteval binding_text rows_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(sparse_rows, data),
          {{{"B", at + offsetof(sparse_rows, entry)},
            {"Hq|Hkv", at + offsetof(sparse_rows, head)},
            {"Sq|Sk", at + offsetof(sparse_rows, token)}}},
          at + offsetof(sparse_rows, type)};
}
consteval binding_text statistics_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(sparse_statistics, data),
          {{{"B", at + offsetof(sparse_statistics, entry)},
            {"Hq", at + offsetof(sparse_statistics, head)},
            {"Sq", at + offsetof(sparse_statistics, token)}}}};
}
consteval binding_text numbers_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(sparse_numbers, data),
          {{{"B", at + offsetof(sparse_numbers, entry)},
            {"Sq|Sk", at + offsetof(sparse_numbers, token)}}}};
}
consteval binding_text mask_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(sparse_mask, data),
          {{{"B", at + offsetof(sparse_mask, entry)},
            {"Hq", at + offsetof(sparse_mask, head)},
            {"Sq|Nq", at + offsetof(sparse_mask, row)},
            {"Sk|Nk", at + offsetof(sparse_mask, column)}}}};
}
consteval binding_text sinks_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(sparse_sinks, data),
          {{{"Hq", at + offsetof(sparse_sinks, head)}, {"n", at + offsetof(sparse_sinks, sink)}}}};
}
inline constexpr std::array input_bindings{
    rows_at("q", offsetof(kernel, q)),
    rows_at("k", offsetof(kernel, k)),
    rows_at("v", offsetof(kernel, v)),
    numbers_at("q_segment_ids", offsetof(kernel, q_segments)),
    numbers_at("q_segment_ids", offsetof(kernel, kv_segments)),  // if there are no others
    numbers_at("kv_segment_ids", offsetof(kernel, kv_segments)),
    numbers_at("q_positions", offsetof(kernel, q_positions)),
    numbers_at("kv_positions", offsetof(kernel, kv_positions)),
    mask_at("mask", offsetof(kernel, mask)),
    mask_at("block_mask", offsetof(kernel, block_mask)),
    sinks_at("sinks", offsetof(kernel, sinks)),
    rows_at("out", offsetof(kernel, out)),
    statistics_at("lse", offsetof(kernel, lse)),
};
inline constexpr auto bindings = declared::bindings_in(input_bindings, form);
inline constexpr auto backward_bindings = declared::bindings_in(
    declared::with(input_bindings, rows_at("d_out", offsetof(kernel, d_out)),
                   statistics_at("d_lse", offsetof(kernel, d_lse)),
                   rows_at("d_q", offsetof(kernel, d_q)), rows_at("d_k", offsetof(kernel, d_k)),
                   rows_at("d_v", offsetof(kernel, d_v)),
                   sinks_at("d_sinks", offsetof(kernel, d_sinks))),
    backward_form);
inline constexpr std::array size_texts{
    size_text{"B", offsetof(kernel, batch)},       size_text{"Hq", offsetof(kernel, q_heads)},
    size_text{"Hkv", offsetof(kernel, kv_heads)},  size_text{"Sq", offsetof(kernel, q_len)},
    size_text{"Sk", offsetof(kernel, kv_len)},     size_text{"D", offsetof(kernel, head_dim)},
    size_text{"Dv", offsetof(kernel, v_head_dim)}, size_text{"n", offsetof(kernel, sink_count)}};
inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto backward_sizes = declared::sizes_in(size_texts, backward_form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<sparse_attention_kernel_args*>(to)->blocksparse;
  const options& wanted = call.options_as<options>();
  const auto reach = [](const std::optional<std::int64_t>& given) {
    return std::min(given.value_or(kernel::far), kernel::far);
  };
  const double root = std::sqrt(static_cast<double>(filled.head_dim));
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0 / root));
  filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0.0));
  filled.causal = wanted.causal;
  const bool top_left = wanted.causal_alignment == alignment::top_left;
  filled.first_position = top_left ? 0 : filled.kv_len - filled.q_len;
  filled.window_left = reach(wanted.window_left);
  filled.window_right = reach(wanted.window_right);
  filled.chunk_size = std::min(wanted.chunk_size.value_or(0), kernel::far);
  filled.block_q = wanted.block_q;
  filled.block_k = wanted.block_k;
  if (call.has(tensor("d_sinks"))) filled.sink_rows = call.tensors[tensor("d_sinks")].extent[0];
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);
inline constexpr lowering backward_lower =
    declared::lowering_of<kernel_defaults>(backward_sizes, backward_bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("blocksparse_attention", 0, form, lower,
                           "q! k! v! q_segment_ids kv_segment_ids q_positions kv_positions mask "
                           "block_mask sinks out! lse")};
inline constexpr std::array backward_operations{declared::operation_of(
    "blocksparse_attention_backward", 0, backward_form, backward_lower,
    "q! k! v! q_segment_ids kv_segment_ids q_positions kv_positions mask block_mask sinks out! "
    "lse! d_out! d_lse d_q! d_k! d_v! d_sinks")};

}  // namespace tessera::blocksparse_table
