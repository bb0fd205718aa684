// deepseek_attn and its gradient, declared: flash_mla on the keys that an indexer, or the caller,
// selects for each token.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <tessera/families/attention/option_forms.hpp>
#include <tessera/families/latent_attention/deepseek_attn_args.hpp>
#include <tessera/families/latent_attention/deepseek_attn_options.hpp>
#include <tessera/families/latent_attention/flash_mla_declaration.hpp>

namespace tessera::deepseek_attn_table {

using options = deepseek_attn_options;
using kernel = latent_attention_kernel_args;
using declared::everywhere;
using flash_mla_table::as_output;
using flash_mla_table::free_option;
using flash_mla_table::gradient_of;
using flash_mla_table::most_columns;
using flash_mla_table::most_heads;
using flash_mla_table::operand;
using flash_mla_table::rows_at;
using flash_mla_table::statistic;
using flash_mla_table::statistics_at;
using flash_mla_table::texts;

/// Rope parts as in flash_mla, of calls that select, then of those to which keys are given.
inline constexpr std::array<std::string_view, 6> layouts{
    "latent", "rope", "shared rope", "given latent", "given rope", "given shared rope"};
inline constexpr int rope_layouts = 3;
/// Of a gradient, to which keys are always given.
inline constexpr auto backward_layouts = flash_mla_table::layouts;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "S", .label = "length", .most = std::numeric_limits<std::int32_t>::max()},
    dim{.symbol = "R", .label = "latent columns", .least = 1, .most = most_columns},
    dim{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "dn", .label = "head_dim", .least = 1, .most = most_columns},
    dim{.symbol = "dv", .label = "head_dim", .least = 1, .most = most_columns},
    dim{.symbol = "dr", .label = "rope columns", .least = 1, .most = most_columns},
    dim{.symbol = "Hi", .label = "index heads", .least = 1, .most = most_heads},
    dim{.symbol = "Di", .label = "index columns", .least = 1, .most = most_columns},
    dim{.symbol = "n", .label = "number of slots", .most = most_heads},
    dim{.symbol = "dq",
        .label = "head_dim",
        .source = dim_source::formula,
        .of = "dn",
        .value =
            [](const bound_call& call) {
              return call.dims[5] + (call.layout % rope_layouts == 1 ? call.dims[7] : 0);
            }},
    dim{.symbol = "K",
        .label = "number of kept keys",
        .source = dim_source::formula,
        .of = "S",
        .value =
            [](const bound_call& call) {
              const options& wanted = call.options_as<options>();
              return std::min(wanted.index_topk, call.dims[1]) + (wanted.force_self ? 1 : 0);
            },
        .owner = "the selection"},
};
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}
static_assert(dim_of("S") == 1 && dim_of("dn") == 5 && dim_of("dr") == 7);

inline constexpr texts of_rope{"-", "B S dr", "B S dr", "-", "B S dr", "B S dr"};
inline constexpr texts of_shared_rope{"-", "-", "B S dr", "-", "-", "B S dr"};
inline constexpr texts of_queries{"B S Hq dn", "B S Hq dq", "B S Hq dn",
                                  "B S Hq dn", "B S Hq dq", "B S Hq dn"};

/// A tensor of calls that select.
constexpr tensor_text of_selecting(tensor_text text, std::string_view shape) {
  text.shapes = {shape, shape, shape, "-", "-", "-"};
  text.elsewhere = "is given with indices, which say what is selected";
  return text;
}
constexpr tensor_text of_indexer(std::string_view name, std::string_view shape,
                                 std::string_view like = "q_index") {
  tensor_text text = of_selecting(operand(name, {}), shape);
  text.like = like;
  return text;
}

enum class direction { forward, backward };

consteval std::array<tensor_text, 21> tensors_for(direction where) {
  const bool forward = where == direction::forward;
  const tensor_text out = operand("out", everywhere("B S Hq dv"));
  const tensor_text lse = statistic("lse");
  tensor_text latents = operand("ckv", everywhere("B S R"));
  latents.like = {};
  latents.types = floating_types;
  tensor_text rope_query = operand("q_pe", of_shared_rope);
  rope_query.elsewhere = "is given, k_pe is absent; a rope query meets a rope key";
  tensor_text index_query = of_indexer("q_index", "B S Hi Di", {});
  index_query.types = floating_types;
  tensor_text index_weights = of_indexer("index_weights", "B S Hi");
  index_weights.types = dtype::f32;
  tensor_text indices{.name = "indices",
                      .shapes = everywhere("B S n"),
                      .types = dtype::i32,
                      .holds = tensor_contents::indices_or_none,
                      .counts = "S"};
  if (forward) indices.shapes = {"-", "-", "-", "B S n", "B S n", "B S n"};
  const tensor_text selected{.name = "selected_indices",
                             .types = dtype::i32,
                             .use = tensor_use::output,
                             .free = true,
                             .file_name = "indices"};
  return {latents,
          operand("w_kc", everywhere("R Hkv dn")),
          operand("w_vc", everywhere("R Hkv dv")),
          operand("k_pe", of_rope),
          rope_query,
          operand("q", of_queries),
          index_query,
          of_indexer("k_index", "B S Di"),
          index_weights,
          indices,
          forward ? as_output(out) : out,
          forward ? as_output(lse, true) : lse,
          of_selecting(selected, "B S K"),
          operand("d_out", everywhere("B S Hq dv")),
          statistic("d_lse"),
          gradient_of("ckv", operand("d_ckv", everywhere("B S R"))),
          gradient_of("w_kc", operand("d_w_kc", everywhere("R Hkv dn"))),
          gradient_of("w_vc", operand("d_w_vc", everywhere("R Hkv dv"))),
          gradient_of("k_pe", operand("d_k_pe", of_rope)),
          gradient_of("q_pe", operand("d_q_pe", of_shared_rope)),
          gradient_of("q", operand("d_q", of_queries))};
}
inline constexpr auto forward_texts = tensors_for(direction::forward);
inline constexpr auto backward_texts = tensors_for(direction::backward);
inline constexpr auto shapes = declared::shapes_in<layouts.size()>(forward_texts, dims);
inline constexpr auto backward_shapes =
    declared::shapes_in<backward_layouts.size()>(backward_texts, dims);
inline constexpr auto tensors = declared::tensors_in(forward_texts, shapes, dims);
inline constexpr auto backward_tensors =
    declared::tensors_in(backward_texts, backward_shapes, dims);
consteval std::int8_t tensor(std::string_view name) {
  return declared::index_of(std::span<const tensor_form>(tensors), name, &tensor_form::name);
}

inline constexpr std::array option_forms{
    attention_table::softmax_scale_at(offsetof(options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(options, causal)},
    option_form{.name = "index_topk",
                .offset = offsetof(options, index_topk),
                .type = option_type::integer,
                .limit = option_limit::at_least,
                .least = 1,
                .free = true},
    option_form{.name = "index_scale",
                .offset = offsetof(options, index_scale),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "1/sqrt(Di)",
                .free = true},
    free_option({.name = "force_self", .offset = offsetof(options, force_self)}),
};
inline constexpr std::array multiples{multiple_rule{dim_of("Hq"), dim_of("Hkv")}};

inline int rope_layout_of(const bound_call& call) {
  if (!call.has(tensor("k_pe"))) return 0;
  return call.has(tensor("q_pe")) ? 2 : 1;
}
inline int layout_of(const bound_call& call) {
  return rope_layout_of(call) + (call.has(tensor("indices")) ? rope_layouts : 0);
}

inline constexpr signature form = declared::signature_of<deepseek_attn_problem>({
    .tensors = tensors,
    .shapes = shapes,
    .dims = dims,
    .layouts = layouts,
    .options = option_forms,
    .multiples = multiples,
    .layout_of = &layout_of,
});
inline constexpr signature backward_form = declared::signature_of<deepseek_attn_problem>({
    .tensors = backward_tensors,
    .shapes = backward_shapes,
    .dims = dims,
    .layouts = backward_layouts,
    .options = option_forms,
    .multiples = multiples,
    .layout_of = &rope_layout_of,
});

// Where a kernel finds them.

inline constexpr kernel kernel_defaults{};
inline constexpr std::size_t indexer = offsetof(kernel, indexer);
inline constexpr std::array size_texts{size_text{"B", offsetof(kernel, entries)},
                                       size_text{"S", offsetof(kernel, length)},
                                       size_text{"Hq", offsetof(kernel, heads)},
                                       size_text{"Hkv", offsetof(kernel, kv_heads)},
                                       size_text{"R", offsetof(kernel, latent)},
                                       size_text{"dn", offsetof(kernel, nope)},
                                       size_text{"dr", offsetof(kernel, rope)},
                                       size_text{"dv", offsetof(kernel, value)},
                                       size_text{"Hi", indexer + offsetof(key_indexer, heads)},
                                       size_text{"Di", indexer + offsetof(key_indexer, width)},
                                       size_text{"n", indexer + offsetof(key_indexer, slots)}};
inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto backward_sizes = declared::sizes_in(size_texts, backward_form);

consteval binding_text slots_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(key_slots, data),
          {{{"B", at + offsetof(key_slots, entry)},
            {"S", at + offsetof(key_slots, token)},
            {"n|K", at + offsetof(key_slots, slot)}}}};
}
inline constexpr std::array binding_texts{
    rows_at("ckv", offsetof(kernel, ckv)),
    rows_at("k_pe", offsetof(kernel, k_pe)),
    rows_at("w_kc", offsetof(kernel, w_kc), "R", "Hkv"),
    rows_at("w_vc", offsetof(kernel, w_vc), "R", "Hkv"),
    rows_at("q", offsetof(kernel, q)),
    rows_at("q_pe", offsetof(kernel, q_pe)),
    rows_at("out", offsetof(kernel, out)),
    statistics_at("lse", offsetof(kernel, lse)),
    rows_at("q_index", indexer + offsetof(key_indexer, q), "S", "Hi"),
    rows_at("k_index", indexer + offsetof(key_indexer, k)),
    rows_at("index_weights", indexer + offsetof(key_indexer, weights)),
    slots_at("indices", indexer + offsetof(key_indexer, given)),
    slots_at("selected_indices", indexer + offsetof(key_indexer, selected)),
    rows_at("d_out", offsetof(kernel, d_out)),
    statistics_at("d_lse", offsetof(kernel, d_lse)),
    rows_at("d_ckv", offsetof(kernel, d_ckv)),
    rows_at("d_k_pe", offsetof(kernel, d_k_pe)),
    rows_at("d_q_pe", offsetof(kernel, d_q_pe)),
    rows_at("d_q", offsetof(kernel, d_q)),
    rows_at("d_w_kc", offsetof(kernel, d_w_kc), "R", "Hkv"),
    rows_at("d_w_vc", offsetof(kernel, d_w_vc), "R", "Hkv")};
inline constexpr auto bindings = declared::bindings_in(binding_texts, form);
inline constexpr auto backward_bindings = declared::bindings_in(binding_texts, backward_form);

inline void finish(const bound_call& call, void* to) {
  using flash_mla_table::columns_behind;
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  const int rope = call.layout % rope_layouts;
  filled.shared_rope = rope == 2;
  if (rope == 1) {
    filled.q_pe = columns_behind(filled.q, filled.nope);
    if (call.has(tensor("d_q"))) filled.d_q_pe = columns_behind(filled.d_q, filled.nope);
  }
  const double root = std::sqrt(static_cast<double>(filled.nope + filled.rope));
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0 / root));
  filled.causal = wanted.causal;
  const double index_scale = wanted.index_scale.value_or(1.0);
  filled.indexer.sign = index_scale > 0 ? 1.0f : index_scale < 0 ? -1.0f : 0.0f;
  filled.indexer.force_self = wanted.force_self;
  if (filled.indexer.given.data == nullptr) {
    filled.indexer.topk = std::min(wanted.index_topk, filled.length);
    filled.indexer.slots = filled.indexer.topk + (wanted.force_self ? 1 : 0);
  }
}

/// `q_pe` lies in `q`.
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);
inline constexpr lowering backward_lower =
    declared::lowering_of<kernel_defaults>(backward_sizes, backward_bindings, &finish, true);

inline constexpr std::array operations{
    declared::operation_of("deepseek_attn", 0, form, lower,
                           "ckv! w_kc! w_vc! k_pe q_pe q! q_index! k_index! index_weights! "
                           "indices! out! lse selected_indices"),
    declared::operation_of("deepseek_attn_backward", 1, backward_form, backward_lower,
                           "ckv! w_kc! w_vc! k_pe q_pe q! indices! out! lse! d_out! d_lse d_ckv! "
                           "d_w_kc! d_w_vc! d_k_pe! d_q_pe! d_q!"),
};

}  // namespace tessera::deepseek_attn_table
