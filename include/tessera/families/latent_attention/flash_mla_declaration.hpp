// flash_mla and its gradient, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <tessera/families/attention/option_forms.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::flash_mla_table {

using options = flash_mla_options;
using texts = std::array<std::string_view, max_layouts>;
using attention_table::free_option;
using declared::everywhere;

inline constexpr std::int64_t most_heads = std::numeric_limits<int>::max();
/// Columns of a row: what kernels count in an int with room to spare.
inline constexpr std::int64_t most_columns = 1 << 20;

/// "latent": no rope parts; "rope": of each head's query; "shared rope": one for all heads.
inline constexpr std::array<std::string_view, 3> layouts{"latent", "rope", "shared rope"};

/// Where the rope parts of a call are, by number; an operation may have three more layouts, whose
/// rope parts are where those of the first three are.
constexpr int rope_layout_in(const bound_call& call) noexcept {
  return call.layout % static_cast<int>(layouts.size());
}
/// Those of operations that make keys and values of the latents of a sequence.
consteval auto latent_dims(dim length) {
  std::array list{
      dim{.symbol = "B", .label = "batch"},
      length,
      dim{.symbol = "R", .label = "latent columns", .least = 1, .most = most_columns},
      dim{.symbol = "Hq", .label = "heads", .least = 1, .most = most_heads},
      dim{.symbol = "Hkv", .label = "heads", .least = 1, .most = most_heads},
      dim{.symbol = "dn", .label = "head_dim", .least = 1, .most = most_columns},
      dim{.symbol = "dv", .label = "head_dim", .least = 1, .most = most_columns},
      dim{.symbol = "dr", .label = "rope columns", .least = 1, .most = most_columns},
      dim{.symbol = "dq",
          .label = "head_dim",
          .source = dim_source::formula,
          .of = "dn",
          .value =
              [](const bound_call& call) {
                return call.dims[5] + (rope_layout_in(call) == 1 ? call.dims[7] : 0);
              }},
  };
  if (list[5].symbol != "dn" || list[7].symbol != "dr") throw "dq is dn, and dr where q has it";
  return list;
}
inline constexpr auto dims =
    declared::with(latent_dims({.symbol = "S", .label = "length"}),
                   dim{.symbol = "n", .label = "number of sinks", .most = most_heads});
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}

/// Shapes by where rope parts are; layouts behind the first three have the same.
consteval texts by_rope(std::string_view none, std::string_view own, std::string_view shared) {
  return {none, own, shared, none, own, shared};
}
inline constexpr texts of_rope = by_rope("-", "B S dr", "B S dr");
inline constexpr texts of_shared_rope = by_rope("-", "-", "B S dr");
inline constexpr texts of_queries = by_rope("B S Hq dn", "B S Hq dq", "B S Hq dn");
inline constexpr std::string_view of_scores = "B? Hq? S?:rows S?:keys";

using declared::as_unaligned_output;
using declared::operand;
constexpr tensor_text statistic(std::string_view name) {
  return {.name = name, .shapes = everywhere("B Hq S"), .types = dtype::f32, .free = true};
}
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  return as_unaligned_output(text, of);
}
constexpr tensor_text sinks_named(std::string_view name, std::string_view shape = "Hq? n") {
  return {.name = name, .shapes = everywhere(shape), .types = dtype::f32, .free = true};
}
constexpr tensor_text of_each_score(std::string_view name, dtype_set types) {
  return {.name = name, .shapes = everywhere(of_scores), .types = types};
}

enum class direction { forward, backward };

/// Latents, what makes keys and values of them, and queries.
inline constexpr std::array input_texts{
    operand("ckv", everywhere("B S R")),
    operand("w_kc", everywhere("R Hkv dn"), "ckv"),
    operand("w_vc", everywhere("R Hkv dv"), "ckv"),
    operand("k_pe", of_rope, "ckv"),
    [] {
      tensor_text rope_query = operand("q_pe", of_shared_rope, "ckv");
      rope_query.elsewhere = "is given, k_pe is absent; a rope query meets a rope key";
      return rope_query;
    }(),
    operand("q", of_queries, "ckv"),
};
/// What is added to scores, hides them, and stands beside them. `sinks`: the shape.
consteval std::array<tensor_text, 3> score_texts(std::string_view sinks = "Hq? n") {
  return {of_each_score("bias_post", floating_types), of_each_score("mask", dtype::u8),
          sinks_named("sinks", sinks)};
}
/// Of a gradient they are inputs.
consteval std::array<tensor_text, 2> results_for(direction where) {
  const tensor_text out = operand("out", everywhere("B S Hq dv"), "ckv");
  const tensor_text lse = statistic("lse");
  if (where == direction::backward) return {out, lse};
  return {as_unaligned_output(out), as_unaligned_output(lse)};
}
inline constexpr std::array gradient_texts{
    operand("d_out", everywhere("B S Hq dv"), "ckv"),
    statistic("d_lse"),
    gradient_of("ckv", operand("d_ckv", everywhere("B S R"), "ckv")),
    gradient_of("w_kc", operand("d_w_kc", everywhere("R Hkv dn"), "ckv")),
    gradient_of("w_vc", operand("d_w_vc", everywhere("R Hkv dv"), "ckv")),
    gradient_of("k_pe", operand("d_k_pe", of_rope, "ckv")),
    gradient_of("q_pe", operand("d_q_pe", of_shared_rope, "ckv")),
    gradient_of("q", operand("d_q", of_queries, "ckv")),
};

consteval std::array<tensor_text, 2> score_gradient_texts(std::string_view sinks = "Hq? n") {
  tensor_text d_bias = of_each_score("d_bias_post", floating_types);
  d_bias.free = true;
  return {gradient_of("bias_post", d_bias), gradient_of("sinks", sinks_named("d_sinks", sinks))};
}

consteval auto tensors_for(direction where) {
  return declared::with(input_texts, score_texts(), results_for(where), gradient_texts,
                        score_gradient_texts());
}
inline constexpr auto forward_texts = tensors_for(direction::forward);
inline constexpr auto backward_texts = tensors_for(direction::backward);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(forward_texts, name);
}

/// Of options that have these members.
template <class Options>
inline constexpr std::array scale_option_forms{
    attention_table::softmax_scale_at(offsetof(Options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(Options, causal)},
};
template <class Options>
inline constexpr std::array score_option_forms{
    free_option(attention_table::window_at("window_left", offsetof(Options, window_left))),
    free_option(attention_table::window_at("window_right", offsetof(Options, window_right))),
    free_option(attention_table::soft_cap_at(offsetof(Options, logits_soft_cap))),
    attention_table::dropout_probability_at(offsetof(Options, dropout_probability)),
    attention_table::dropout_seed_at(offsetof(Options, dropout_seed)),
};
inline constexpr auto option_forms =
    declared::with(scale_option_forms<options>, score_option_forms<options>);

/// clang 14 calls no consteval function for what a template parameter names.
constexpr std::int8_t number_of(std::span<const tensor_text> tensors, std::string_view name) {
  return declared::index_of(tensors, name, &tensor_text::name);
}

/// Where the tensors of scores are among `Texts`.
template <const auto& Texts>
struct score_tensor_numbers {
  static constexpr std::int8_t bias = number_of(Texts, "bias_post");
  static constexpr std::int8_t mask = number_of(Texts, "mask");
  static constexpr std::int8_t sinks = number_of(Texts, "sinks");
  static constexpr std::int8_t d_q = number_of(Texts, "d_q");
  static constexpr std::int8_t d_bias = number_of(Texts, "d_bias_post");
  static constexpr std::int8_t d_sinks = number_of(Texts, "d_sinks");

  static constexpr std::array rules{
      tensor_rule{d_bias, [](const bound_call& call) { return call.has(bias); },
                  "is given, bias_post is absent"},
      tensor_rule{d_sinks, [](const bound_call& call) { return call.has(sinks); },
                  "is given, sinks is absent"},
  };
};
using numbers = score_tensor_numbers<forward_texts>;
inline constexpr std::array multiples{multiple_rule{dim_of("Hq"), dim_of("Hkv")}};

/// Of every operation whose first tensors are `input_texts`.
inline int layout_of(const bound_call& call) {
  if (!call.has(tensor("k_pe"))) return 0;
  return call.has(tensor("q_pe")) ? 2 : 1;
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<flash_mla_problem, Texts, dims, layouts, forward_texts>({
      .options = option_forms,
      .rules = numbers::rules,
      .multiples = multiples,
      .layout_of = &layout_of,
  });
}
inline constexpr signature form = form_of<forward_texts>();
inline constexpr signature backward_form = form_of<backward_texts>();

// Where a kernel finds them.

using kernel = latent_attention_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

/// Rows of tokens, or of latent columns.
consteval binding_text rows_at(std::string_view name, std::size_t at, std::string_view rows = "S",
                               std::string_view heads = "Hq") {
  return {name,
          at + offsetof(latent_rows, data),
          {{{rows == "S" ? "B" : "", at + offsetof(latent_rows, entry)},
            {rows, at + offsetof(latent_rows, token)},
            {heads, at + offsetof(latent_rows, head)}}},
          at + offsetof(latent_rows, type)};
}
consteval binding_text statistics_at(std::string_view name, std::size_t at,
                                     std::string_view entries = "B", std::string_view heads = "Hq",
                                     std::string_view length = "S") {
  return {name,
          at + offsetof(row_statistics, data),
          {{{entries, at + offsetof(row_statistics, batch)},
            {heads, at + offsetof(row_statistics, head)},
            {length, at + offsetof(row_statistics, row)}}}};
}
consteval binding_text sinks_at(std::string_view heads, std::string_view count = "n") {
  return {"sinks",
          offsetof(kernel, sinks),
          {{{heads, offsetof(kernel, sink_head_stride)}, {count, offsetof(kernel, sink_stride)}}}};
}
consteval binding_text sink_gradients_at(std::string_view count = "n") {
  return {
      "d_sinks",
      offsetof(kernel, d_sinks),
      {{{"Hq", offsetof(kernel, d_sink_head_stride)}, {count, offsetof(kernel, d_sink_stride)}}}};
}
/// Of `latent_dims`.
inline constexpr std::array size_texts{
    size_text{"B", offsetof(kernel, entries)}, size_text{"S", offsetof(kernel, length)},
    size_text{"Hq", offsetof(kernel, heads)},  size_text{"Hkv", offsetof(kernel, kv_heads)},
    size_text{"R", offsetof(kernel, latent)},  size_text{"dn", offsetof(kernel, nope)},
    size_text{"dr", offsetof(kernel, rope)},   size_text{"dv", offsetof(kernel, value)},
};
/// Of `input_texts`, results and `gradient_texts`.
inline constexpr std::array binding_texts{
    rows_at("ckv", offsetof(kernel, ckv)),
    rows_at("k_pe", offsetof(kernel, k_pe)),
    rows_at("w_kc", offsetof(kernel, w_kc), "R", "Hkv"),
    rows_at("w_vc", offsetof(kernel, w_vc), "R", "Hkv"),
    rows_at("q", offsetof(kernel, q)),
    rows_at("q_pe", offsetof(kernel, q_pe)),
    rows_at("out", offsetof(kernel, out)),
    statistics_at("lse", offsetof(kernel, lse)),
    rows_at("d_out", offsetof(kernel, d_out)),
    statistics_at("d_lse", offsetof(kernel, d_lse)),
    rows_at("d_ckv", offsetof(kernel, d_ckv)),
    rows_at("d_k_pe", offsetof(kernel, d_k_pe)),
    rows_at("d_q_pe", offsetof(kernel, d_q_pe)),
    rows_at("d_q", offsetof(kernel, d_q)),
    rows_at("d_w_kc", offsetof(kernel, d_w_kc), "R", "Hkv"),
    rows_at("d_w_vc", offsetof(kernel, d_w_vc), "R", "Hkv"),
};
inline constexpr auto sizes = declared::sizes_in(
    declared::with(size_texts, size_text{"n", offsetof(kernel, sink_count)}), form);
inline constexpr auto bindings =
    declared::bindings_in(declared::with(binding_texts, sink_gradients_at(), sinks_at("Hq")), form);

/// Bias and mask: their two axes of tokens have the same dim.
inline void bind_scores(const tensor_view& view, score_tensor& to) noexcept {
  if (!view.present()) return;
  to = {.data = view.data,
        .type = view.type,
        .batch = stride_of(view, 0),
        .head = stride_of(view, 1),
        .row = stride_of(view, 2),
        .column = stride_of(view, 3)};
}

inline void bind_gradient(const tensor_view& view, score_gradient& to) noexcept {
  if (!view.present()) return;
  to = {.data = view.data,
        .type = view.type,
        .batch = stride_of(view, 0),
        .head = stride_of(view, 1),
        .row = stride_of(view, 2),
        .column = stride_of(view, 3),
        .batches = view.extent[0],
        .heads = view.extent[1],
        .rows = view.extent[2],
        .columns = view.extent[3]};
}

/// The columns of rows behind the first ones, as rows of their own.
inline latent_rows columns_behind(const latent_rows& rows, std::int64_t first) noexcept {
  latent_rows behind = rows;
  behind.data =
      static_cast<std::byte*>(rows.data) + first * static_cast<std::int64_t>(size_of(rows.type));
  return behind;
}

/// Where rope parts are, what becomes of scores, and dropout. `Numbers`: `score_tensor_numbers`.
template <class Numbers, class Options>
void finish_expanded(const bound_call& call, const Options& wanted, kernel& filled) noexcept {
  const int rope = rope_layout_in(call);
  filled.shared_rope = rope == 2;
  if (rope == 1) {
    filled.q_pe = columns_behind(filled.q, filled.nope);
    if (call.has(Numbers::d_q)) filled.d_q_pe = columns_behind(filled.d_q, filled.nope);
  }
  const double root = std::sqrt(static_cast<double>(filled.nope + filled.rope));
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0 / root));
  filled.causal = wanted.causal;
  filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0.0));
  bind_scores(call.tensors[Numbers::bias], filled.bias);
  bind_scores(call.tensors[Numbers::mask], filled.mask);
  bind_gradient(call.tensors[Numbers::d_bias], filled.d_bias);
  filled.d_sink_heads = call.has(Numbers::d_sinks) ? call.tensors[Numbers::d_sinks].extent[0] : 0;
  filled.dropout = wanted.dropout_probability > 0.0;
  filled.dropout_threshold = attention_table::dropout_threshold(wanted.dropout_probability);
  filled.dropout_seed = wanted.dropout_seed;
  filled.out_factor = static_cast<float>(1.0 / (1.0 - wanted.dropout_probability));
  filled.window_left = wanted.window_left.value_or(unbounded);
  filled.window_right = wanted.window_right.value_or(unbounded);
}

inline void finish(const bound_call& call, void* to) {
  finish_expanded<numbers>(call, call.options_as<options>(), *static_cast<kernel*>(to));
}

/// `q_pe` lies in `q`, and scores are bound by hand.
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);

inline constexpr std::array operations{
    declared::also_called(
        declared::operation_of("flash_mla", 0, form, lower,
                               "ckv! w_kc! w_vc! k_pe q_pe q! bias_post mask sinks out! lse"),
        "multi_head_latent_attention"),
    declared::also_called(
        declared::operation_of(
            "flash_mla_backward", 1, backward_form, lower,
            "ckv! w_kc! w_vc! k_pe q_pe q! bias_post mask sinks out! lse! d_out! "
            "d_lse d_ckv! d_w_kc! d_w_vc! d_k_pe! d_q_pe! d_q! d_bias_post d_sinks"),
        "multi_head_latent_attention_backward"),
};

}  // namespace tessera::flash_mla_table
