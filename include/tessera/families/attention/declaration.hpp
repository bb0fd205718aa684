// The attention operations, declared: tensors, dims, options, and where kernels find them.
//
// What is refused beyond this table: tensors in different memories; outputs that are read-only,
// whose elements share memory (see `has_distinct_elements`) or that share a byte with any other
// tensor (see `share_memory`; interleaved slices of one buffer that do not touch are legal). Zero
// batch entries, rows, keys and sequences are legal, and strides of axes with one element are not
// looked at. Of tensors in a GPU's memory only the descriptions are looked at: the values of
// cu_seqlens_* and seqlens_* there are the caller's to keep within these rules.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/option_forms.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/token_offsets.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::attention_table {

using options = flash_attention_options;

inline constexpr std::int64_t most_heads = std::numeric_limits<int>::max();
inline constexpr dim query_heads{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads};
inline constexpr dim key_heads{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads};
inline constexpr dim head_dim_of_qk{
    .symbol = "D", .label = "head_dim", .least = 1, .most = max_head_dim};
inline constexpr dim head_dim_of_v{
    .symbol = "Dv", .label = "head_dim", .least = 1, .most = max_head_dim};
inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "Sq", .label = "length"},
    dim{.symbol = "Sk", .label = "length"},
    query_heads,
    key_heads,
    head_dim_of_qk,
    head_dim_of_v,
    dim{.symbol = "n", .label = "number of sinks", .most = most_heads},
    dim{.symbol = "Lq",
        .label = "rows",
        .source = dim_source::contents,
        .owner = "the longest sequence of cu_seqlens_q"},
    dim{.symbol = "Lk",
        .label = "keys",
        .source = dim_source::contents,
        .owner = "the longest sequence of cu_seqlens_k"},
};

inline constexpr std::array<std::string_view, 2> layouts{"dense", "packed"};
using texts = std::array<std::string_view, max_layouts>;
inline constexpr texts of_scores{"B? Hq? Sq?:rows Sk?:keys", "N?:batch Hq? Lq+? Lk+?"};
inline constexpr texts of_weights{"B Hq Sq:rows Sk:keys", "-"};
inline constexpr texts of_statistics{"B Hq Sq", "Hq Sq"};
inline constexpr std::string_view no_lengths =
    "is given with cu_seqlens_q; lengths belong to dense tensors, packed ones have offsets";
inline constexpr std::string_view no_segments =
    "is given with cu_seqlens_q; packed sequences are apart already, give segments to dense "
    "tensors";
inline constexpr std::string_view no_scores =
    "is given with cu_seqlens_q; packed tensors have no such output";

constexpr tensor_text first_operand(std::string_view name, const texts& shapes) {
  return {.name = name,
          .shapes = shapes,
          .types = floating_types,
          .contiguous_rows = true,
          .aligned_rows = true};
}
/// `shape_of`: the tensor whose shape it has unless problem text says another.
constexpr tensor_text operand(std::string_view name, const texts& shapes,
                              std::string_view shape_of = {}) {
  return {.name = name,
          .shapes = shapes,
          .like = "q",
          .contiguous_rows = true,
          .aligned_rows = true,
          .shape_of = shape_of};
}
constexpr tensor_text result_of(std::string_view name, const texts& shapes) {
  return {.name = name,
          .shapes = shapes,
          .like = "q",
          .use = tensor_use::output,
          .contiguous_rows = true};
}
constexpr tensor_text statistic(std::string_view name, const texts& shapes) {
  return {
      .name = name, .shapes = shapes, .types = dtype::f32, .use = tensor_use::output, .free = true};
}
constexpr tensor_text of_each_score(std::string_view name, dtype_set types) {
  return {.name = name, .shapes = of_scores, .types = types};
}
constexpr tensor_text segment_ids(std::string_view name, std::string_view shape,
                                  bool free = false) {
  return {.name = name,
          .shapes = {shape, "-"},
          .types = dtype::i32,
          .elsewhere = no_segments,
          .free = free};
}
constexpr tensor_text offsets(std::string_view name, std::string_view shape, std::string_view rows,
                              std::string_view longest) {
  return {.name = name,
          .shapes = {"-", shape},
          .types = dtype::i32,
          .contiguous_rows = true,
          .holds = tensor_contents::offsets,
          .counts = rows,
          .longest = longest};
}
constexpr tensor_text lengths(std::string_view name, std::string_view rows) {
  return {.name = name,
          .shapes = {"B", "-"},
          .types = dtype::i32,
          .contiguous_rows = true,
          .holds = tensor_contents::lengths,
          .counts = rows,
          .elsewhere = no_lengths};
}

inline constexpr std::array tensor_texts{
    first_operand("q", {"B Sq Hq D", "Sq Hq D"}),
    operand("k", {"B Sk Hkv D", "Sk Hkv D"}),
    operand("v", {"B Sk Hkv Dv", "Sk Hkv Dv"}, "k"),
    of_each_score("bias_pre", floating_types),
    of_each_score("bias_post", floating_types),
    of_each_score("mask", dtype::u8),
    segment_ids("q_segment_ids", "B Sq"),
    segment_ids("kv_segment_ids", "B Sk", true),
    tensor_text{.name = "sinks", .shapes = {"Hq? n", "Hq? n"}, .types = dtype::f32},
    offsets("cu_seqlens_q", "N+1", "Sq", "Lq"),
    offsets("cu_seqlens_k", "N+1:length", "Sk", "Lk"),
    lengths("seqlens_q", "Sq"),
    lengths("seqlens_k", "Sk"),
    result_of("out", {"B Sq Hq Dv", "Sq Hq Dv"}),
    statistic("lse", of_statistics),
    statistic("row_max", of_statistics),
    tensor_text{.name = "weights",
                .shapes = of_weights,
                .types = dtype::f32,
                .like = "q",
                .use = tensor_use::output,
                .contiguous_rows = true,
                .elsewhere = no_scores},
    tensor_text{.name = "dropout_mask",
                .shapes = of_weights,
                .types = dtype::u8,
                .use = tensor_use::output,
                .elsewhere = no_scores,
                .free = true},
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}

inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(options, causal)},
    causal_alignment_at(offsetof(options, causal_alignment)),
    window_at("window_left", offsetof(options, window_left)),
    window_at("window_right", offsetof(options, window_right)),
    soft_cap_at(offsetof(options, logits_soft_cap)),
    dropout_probability_at(offsetof(options, dropout_probability)),
    dropout_seed_at(offsetof(options, dropout_seed)),
    option_form{.name = "normalize", .offset = offsetof(options, normalize)},
};
inline constexpr std::array rules{
    tensor_rule{tensor("row_max"),
                [](const bound_call& call) { return !call.options_as<options>().normalize; },
                "is given, normalize is true; it belongs to unnormalized outputs"},
    tensor_rule{tensor("weights"),
                [](const bound_call& call) { return call.options_as<options>().normalize; },
                "is given, normalize is false; weights are normalized"},
    tensor_rule{
        tensor("dropout_mask"),
        [](const bound_call& call) { return call.options_as<options>().dropout_probability != 0; },
        "is given, dropout_probability is 0"},
    tensor_rule{tensor("kv_segment_ids"),
                [](const bound_call& call) { return call.has(tensor("q_segment_ids")); },
                "is given, q_segment_ids is absent"},
};
inline constexpr std::array multiples{multiple_rule{dim_of("Hq"), dim_of("Hkv")}};

/// Pairs that belong together, and what the plain operation asks.
inline bool hook(const bound_call& call, status& failure) {
  if (!has_both_offsets(call, tensor("cu_seqlens_q"), tensor("cu_seqlens_k"), failure)) {
    return false;
  }
  const std::int64_t rows = call.dims[dim_of("Sq")], keys = call.dims[dim_of("Sk")];
  if (call.has(tensor("q_segment_ids")) && !call.has(tensor("kv_segment_ids")) && rows != keys) {
    return checks::refuse(failure,
                          "kv_segment_ids: is absent, and q_segment_ids serve for keys only where "
                          "lengths are equal: q has ",
                          rows, ", k has ", keys);
  }
  const std::int64_t qk = call.dims[dim_of("D")], v = call.dims[dim_of("Dv")];
  const auto op = static_cast<flash_op>(call.op->place);
  return op != flash_op::scaled_dot_product_attention || qk == v ||
         checks::refuse(failure, "v: head_dim is ", v, ", q has ", qk, " and ", call.op->name,
                        " needs them equal");
}

inline int layout_of(const bound_call& call) {
  return layout_by_offsets(call, tensor("cu_seqlens_q"), tensor("cu_seqlens_k"));
}

inline constexpr signature form =
    declared::signature_of<flash_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = attention_kernel_args;
constexpr kernel kernel_defaults() noexcept {
  return {.sink_stride = 0};
}
inline constexpr std::array head_sizes{
    size_text{"Hq", offsetof(kernel, q_heads), sizeof(int)},
    size_text{"Hkv", offsetof(kernel, kv_heads), sizeof(int)},
    size_text{"D", offsetof(kernel, head_dim), sizeof(int)},
    size_text{"Dv", offsetof(kernel, v_head_dim), sizeof(int)},
};
inline constexpr auto size_texts = declared::with(
    head_sizes, size_text{"N|B", offsetof(kernel, batch)}, size_text{"Sq", offsetof(kernel, q_len)},
    size_text{"Sk", offsetof(kernel, kv_len)},
    size_text{"n", offsetof(kernel, sink_count), sizeof(int)});
inline constexpr auto sizes = declared::sizes_in(size_texts, form);

consteval binding_text rows_of(std::string_view name, std::size_t data, std::size_t strides,
                               std::string_view entries, std::string_view length,
                               std::string_view heads) {
  return {name,
          data,
          {{{entries, strides + offsetof(row_strides, batch)},
            {length, strides + offsetof(row_strides, row)},
            {heads, strides + offsetof(row_strides, head)}}}};
}
consteval binding_text statistics_of(std::string_view name, std::size_t at,
                                     std::string_view entries, std::string_view length) {
  return {name,
          at + offsetof(row_statistics, data),
          {{{entries, at + offsetof(row_statistics, batch)},
            {"Hq", at + offsetof(row_statistics, head)},
            {length, at + offsetof(row_statistics, row)}}}};
}
consteval binding_text scores_of(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(score_tensor, data),
          {{{"B|N", at + offsetof(score_tensor, batch)},
            {"Hq", at + offsetof(score_tensor, head)},
            {"Sq|Lq", at + offsetof(score_tensor, row)},
            {"Sk|Lk", at + offsetof(score_tensor, column)}}},
          at + offsetof(score_tensor, type)};
}
consteval binding_text sinks_at(std::size_t at) {
  return {"sinks",
          at,
          {{{"Hq", offsetof(kernel, sink_head_stride)}, {"n", offsetof(kernel, sink_stride)}}}};
}
consteval binding_text ids_of(std::string_view name, std::size_t at, std::string_view length) {
  return {name,
          at + offsetof(token_ids, data),
          {{{"B", at + offsetof(token_ids, batch)}, {length, at + offsetof(token_ids, row)}}}};
}

consteval binding_text weights_of(std::string_view name) {
  return {name,
          offsetof(kernel, weights),
          {{{"B", offsetof(kernel, weights_batch)},
            {"Hq", offsetof(kernel, weights_head)},
            {"Sq", offsetof(kernel, weights_row)}}},
          offsetof(kernel, weights_type)};
}

/// The gradients (families/attention_backward) have these too.
inline constexpr std::array input_bindings{
    rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "B", "Sq", "Hq"),
    rows_of("k", offsetof(kernel, k), offsetof(kernel, k_strides), "B", "Sk", "Hkv"),
    rows_of("v", offsetof(kernel, v), offsetof(kernel, v_strides), "B", "Sk", "Hkv"),
    scores_of("bias_pre", offsetof(kernel, bias_pre)),
    scores_of("bias_post", offsetof(kernel, bias_post)),
    scores_of("mask", offsetof(kernel, mask)),
    ids_of("q_segment_ids", offsetof(kernel, q_segments), "Sq"),
    ids_of("q_segment_ids", offsetof(kernel, kv_segments), "Sq"),  // if there are no others
    ids_of("kv_segment_ids", offsetof(kernel, kv_segments), "Sk"),
    sinks_at(offsetof(kernel, sinks)),
    binding_text{"cu_seqlens_q", offsetof(kernel, cu_seqlens_q)},
    binding_text{"cu_seqlens_k", offsetof(kernel, cu_seqlens_k)},
    binding_text{"seqlens_q", offsetof(kernel, seqlens_q)},
    binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
};
inline constexpr auto bindings = declared::bindings_in(
    declared::with(
        input_bindings,
        rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "B", "Sq", "Hq"),
        statistics_of("lse", offsetof(kernel, lse), "B", "Sq"),
        statistics_of("row_max", offsetof(kernel, row_max), "B", "Sq"), weights_of("weights")),
    form);

/// Scale and left window, which every signature has under these names, and the cap, which most
/// have. `factor` multiplies the scale.
template <class Options>
void set_scores(const Options& wanted, kernel& filled, double factor = 1.0) noexcept {
  const double root = std::sqrt(static_cast<double>(filled.head_dim));
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0 / root) * factor);
  if constexpr (requires { wanted.logits_soft_cap; }) {
    filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0.0));
  }
  filled.window_left = wanted.window_left.value_or(unbounded);
}
/// Causality and right window, where rows and keys are tokens of the same sequence.
template <class Options>
void set_causality(const Options& wanted, kernel& filled) noexcept {
  filled.causal = wanted.causal;
  filled.top_left = wanted.causal_alignment == alignment::top_left;
  filled.window_right = wanted.window_right.value_or(unbounded);
}

/// Rows and keys of a sequence that the scores of a packed call have room for.
inline void bound_by_scores(const tensor_view& scores, kernel& filled) noexcept {
  if (!scores.present()) return;
  if (scores.extent[2] != 1) filled.most_rows = std::min(filled.most_rows, scores.extent[2]);
  if (scores.extent[3] != 1) filled.most_keys = std::min(filled.most_keys, scores.extent[3]);
}

/// The scalars of a launch.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& given = call.options_as<options>();
  set_scores(given, filled);
  set_causality(given, filled);
  filled.normalize = given.normalize;
  filled.dropout = given.dropout_probability > 0.0;
  filled.dropout_threshold = dropout_threshold(given.dropout_probability);
  filled.dropout_scale = static_cast<float>(1.0 / (1.0 - given.dropout_probability));
  filled.out_factor = filled.dropout_scale;
  filled.dropout_seed = given.dropout_seed;
  if (!call.has(tensor("cu_seqlens_q"))) return;
  for (const std::int8_t scores : {tensor("bias_pre"), tensor("bias_post"), tensor("mask")}) {
    bound_by_scores(call.tensors[scores], filled);
  }
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("flash_attention", 0, form, lower,
                           "q! k! v! out! cu_seqlens_q cu_seqlens_k lse bias_pre bias_post mask "
                           "q_segment_ids kv_segment_ids sinks seqlens_q seqlens_k row_max "
                           "dropout_mask"),
    declared::operation_of("attention", 1, form, lower,
                           "q! k! v! out! cu_seqlens_q cu_seqlens_k lse bias_pre bias_post mask "
                           "q_segment_ids kv_segment_ids sinks seqlens_q seqlens_k row_max weights "
                           "dropout_mask"),
    declared::operation_of("scaled_dot_product_attention", 2, form, lower,
                           "q! k! v! out! cu_seqlens_q cu_seqlens_k lse bias_pre bias_post mask "
                           "q_segment_ids kv_segment_ids seqlens_q seqlens_k row_max dropout_mask",
                           "logits_soft_cap dropout_probability normalize"),
};

}  // namespace tessera::attention_table
