// The gradients of the attention operations, declared: tensors, options, and where kernels find
// them. Dims, layouts, options and rules are those of the forward call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::attention_backward_table {

using attention_table::dims;
using attention_table::layouts;
using attention_table::operand;
using attention_table::options;
using attention_table::texts;

constexpr tensor_text as_input(tensor_text text, bool free = false) {
  text.use = tensor_use::input;
  text.free = free;
  return text;
}
constexpr tensor_text gradient_of(std::string_view of, std::string_view name, const texts& shapes) {
  return {.name = name,
          .shapes = shapes,
          .like = "q",
          .use = tensor_use::output,
          .contiguous_rows = true,
          .gradient_of = of};
}
constexpr tensor_text gradient_of_bias(std::string_view of, std::string_view name) {
  return {.name = name,
          .shapes = attention_table::of_scores,
          .types = floating_types,
          .use = tensor_use::output,
          .gradient_of = of};
}

inline constexpr texts of_rows{"B Sq Hq Dv", "Sq Hq Dv"};
/// The inputs of the forward call keep their places.
inline constexpr auto tensor_texts = [] {
  using namespace attention_table;
  std::array<tensor_text, 25> all{};
  std::size_t count = 0;
  while (attention_table::tensor_texts[count].name != "out") {
    all[count] = attention_table::tensor_texts[count];
    ++count;
  }
  for (const tensor_text& text :
       {operand("out", of_rows), as_input(statistic("lse", of_statistics)),
        as_input(statistic("row_max", of_statistics), true), operand("d_out", of_rows),
        as_input(statistic("d_lse", of_statistics), true),
        tensor_text{.name = "d_weights",
        .shapes = of_weights,
        .types = dtype::f32,
        .like = "q",
        .contiguous_rows = true,
        .elsewhere = no_scores},
        gradient_of("q", "d_q", {"B Sq Hq D", "Sq Hq D"}),
        gradient_of("k", "d_k", {"B Sk Hkv D", "Sk Hkv D"}),
        gradient_of("v", "d_v", {"B Sk Hkv Dv", "Sk Hkv Dv"}),
        gradient_of_bias("bias_pre", "d_bias_pre"), gradient_of_bias("bias_post", "d_bias_post"),
        tensor_text{.name = "d_sinks",
        .shapes = {"Hq? n", "Hq? n"},
        .types = dtype::f32,
        .use = tensor_use::output,
        .gradient_of = "sinks",
        .free = true}}) {
    all[count++] = text;
  }
  return all;
}();
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array rules{
    tensor_rule{tensor("row_max"),
                [](const bound_call& call) { return !call.options_as<options>().normalize; },
                "is given, normalize is true; it belongs to unnormalized outputs"},
    tensor_rule{tensor("d_weights"),
                [](const bound_call& call) { return call.options_as<options>().normalize; },
                "is given, normalize is false; weights are normalized"},
    tensor_rule{tensor("kv_segment_ids"),
                [](const bound_call& call) { return call.has(tensor("q_segment_ids")); },
                "is given, q_segment_ids is absent"},
    tensor_rule{tensor("d_bias_pre"),
                [](const bound_call& call) { return call.has(tensor("bias_pre")); },
                "is given, bias_pre is absent"},
    tensor_rule{tensor("d_bias_post"),
                [](const bound_call& call) { return call.has(tensor("bias_post")); },
                "is given, bias_post is absent"},
    tensor_rule{tensor("d_sinks"), [](const bound_call& call) { return call.has(tensor("sinks")); },
                "is given, sinks is absent"},
};

/// What the forward call asks, and the residual that only unnormalized outputs have.
inline bool hook(const bound_call& call, status& failure) {
  if (!attention_table::hook(call, failure)) return false;
  return call.options_as<options>().normalize || call.has(tensor("row_max")) ||
         checks::refuse(failure,
                        "row_max: is absent, normalize is false; gradients of "
                        "unnormalized outputs need it");
}

inline constexpr signature form =
    declared::signature_of<attention_backward_problem, tensor_texts, dims, layouts>({
        .options = attention_table::option_forms,
        .rules = rules,
        .multiples = attention_table::multiples,
        .layout_of = &attention_table::layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = attention_backward_kernel_args;
constexpr kernel kernel_defaults() noexcept {
  return {.forward = attention_table::kernel_defaults()};
}

consteval binding_text gradient_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(score_gradient, data),
          {{{"B|N", at + offsetof(score_gradient, batch)},
            {"Hq", at + offsetof(score_gradient, head)},
            {"Sq|Lq", at + offsetof(score_gradient, row)},
            {"Sk|Lk", at + offsetof(score_gradient, column)}}},
          at + offsetof(score_gradient, type)};
}
inline constexpr auto sizes = declared::sizes_in(attention_table::size_texts, form);
inline constexpr auto bindings = [] {
  using attention_table::rows_of;
  using attention_table::statistics_of;
  return declared::bindings_in(
      declared::with(
          attention_table::input_bindings,
          rows_of("out", offsetof(attention_kernel_args, out),
                  offsetof(attention_kernel_args, out_strides), "B", "Sq", "Hq"),
          statistics_of("lse", offsetof(attention_kernel_args, lse), "B", "Sq"),
          statistics_of("row_max", offsetof(attention_kernel_args, row_max), "B", "Sq"),
          rows_of("d_out", offsetof(kernel, d_out), offsetof(kernel, d_out_strides), "B", "Sq",
                  "Hq"),
          statistics_of("d_lse", offsetof(kernel, d_lse), "B", "Sq"),
          attention_table::weights_of("d_weights"),
          rows_of("d_q", offsetof(kernel, d_q), offsetof(kernel, d_q_strides), "B", "Sq", "Hq"),
          rows_of("d_k", offsetof(kernel, d_k), offsetof(kernel, d_k_strides), "B", "Sk", "Hkv"),
          rows_of("d_v", offsetof(kernel, d_v), offsetof(kernel, d_v_strides), "B", "Sk", "Hkv"),
          gradient_at("d_bias_pre", offsetof(kernel, d_bias_pre)),
          gradient_at("d_bias_post", offsetof(kernel, d_bias_post)),
          binding_text{"d_sinks",
                       offsetof(kernel, d_sinks),
                       {{{"Hq", offsetof(kernel, d_sink_head_stride)},
                         {"n", offsetof(kernel, d_sink_stride)}}}}),
      form);
}();

inline void set_extents(const tensor_view& view, score_gradient& gradient) noexcept {
  if (!view.present()) return;
  gradient.batches = view.extent[0], gradient.heads = view.extent[1];
  gradient.rows = view.extent[2], gradient.columns = view.extent[3];
}

/// The scalars of the forward launch, and the extents of what is summed.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  attention_table::finish(call, &filled.forward);
  set_extents(call.tensors[tensor("d_bias_pre")], filled.d_bias_pre);
  set_extents(call.tensors[tensor("d_bias_post")], filled.d_bias_post);
  filled.d_sink_heads = call.has(tensor("d_sinks")) ? call.tensors[tensor("d_sinks")].extent[0] : 0;
  if (!call.has(tensor("cu_seqlens_q"))) return;
  for (const std::int8_t scores : {tensor("d_bias_pre"), tensor("d_bias_post")}) {
    attention_table::bound_by_scores(call.tensors[scores], filled.forward);
  }
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of(
        "flash_attention_backward", 0, form, lower,
        "q! k! v! out! cu_seqlens_q cu_seqlens_k lse! d_out! bias_pre bias_post mask q_segment_ids "
        "kv_segment_ids sinks seqlens_q seqlens_k row_max d_lse d_q! d_k! d_v! d_bias_pre "
        "d_bias_post d_sinks"),
    declared::operation_of(
        "attention_backward", 1, form, lower,
        "q! k! v! out! cu_seqlens_q cu_seqlens_k lse! d_out! bias_pre bias_post mask q_segment_ids "
        "kv_segment_ids sinks seqlens_q seqlens_k row_max d_lse d_weights d_q! d_k! d_v! "
        "d_bias_pre d_bias_post d_sinks"),
    declared::operation_of(
        "scaled_dot_product_attention_backward", 2, form, lower,
        "q! k! v! out! cu_seqlens_q cu_seqlens_k lse! d_out! bias_pre bias_post mask q_segment_ids "
        "kv_segment_ids seqlens_q seqlens_k d_lse d_q! d_k! d_v! d_bias_pre d_bias_post",
        "logits_soft_cap dropout_probability normalize"),
};

}  // namespace tessera::attention_backward_table

namespace tessera {

/// What its problems are to the engines.
template <>
struct operation_table<attention_backward_op>
    : declared::operation_table_of<attention_backward_problem, attention_backward_kernel_args,
                                   attention_backward_table::operations,
                                   attention_backward_table::operations> {};

}  // namespace tessera
