// deepseek_attn and its gradient, declared: flash_mla on the keys that an indexer, or the caller,
// selects for each token.
#pragma once

#include <algorithm>
#include <array>
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
using attention_table::free_option;
using declared::everywhere;
using declared::operand;
using flash_mla_table::direction;
using flash_mla_table::most_columns;
using flash_mla_table::most_heads;
using flash_mla_table::rows_at;

/// Rope parts as in flash_mla, of calls that select, then of those to which keys are given.
inline constexpr std::array<std::string_view, 6> layouts{
    "latent", "rope", "shared rope", "given latent", "given rope", "given shared rope"};
/// Of a gradient, to which keys are always given.
inline constexpr auto backward_layouts = flash_mla_table::layouts;

inline constexpr auto dims = declared::with(
    flash_mla_table::latent_dims(
        {.symbol = "S", .label = "length", .most = std::numeric_limits<std::int32_t>::max()}),
    dim{.symbol = "Hi", .label = "index heads", .least = 1, .most = most_heads},
    dim{.symbol = "Di", .label = "index columns", .least = 1, .most = most_columns},
    dim{.symbol = "n", .label = "number of slots", .most = most_heads},
    dim{.symbol = "ns", .label = "number of sinks", .most = most_heads},
    dim{.symbol = "K",
        .label = "number of kept keys",
        .source = dim_source::formula,
        .of = "S",
        .value =
            [](const bound_call& call) {
              const options& wanted = call.options_as<options>();
              return std::min(wanted.index_topk, call.dims[1]) + (wanted.force_self ? 1 : 0);
            },
        .owner = "the selection"});
consteval std::int8_t dim_of(std::string_view symbol) {
  return declared::dim_named(dims, symbol);
}
static_assert(dim_of("S") == 1);

/// A tensor of calls that select.
constexpr tensor_text of_selecting(tensor_text text, std::string_view shape) {
  text.shapes = {shape, shape, shape, "-", "-", "-"};
  text.elsewhere = "is given with indices, which say what is selected";
  return text;
}
constexpr tensor_text of_indexer(std::string_view name, std::string_view shape,
                                 std::string_view like = "q_index") {
  return of_selecting(operand(name, {}, like), shape);
}

/// Factors of rows of an indexer.
constexpr tensor_text scales_of(std::string_view name, std::string_view shape) {
  return of_selecting({.name = name, .types = dtype::f32, .free = true}, shape);
}

consteval auto tensors_of(direction where) {
  tensor_text index_query = of_indexer("q_index", "B S Hi Di", {});
  index_query.types = floating_types | dtype::f8_e4m3 | dtype::f8_e5m2;
  tensor_text index_weights = of_indexer("index_weights", "B S Hi", "ckv");
  index_weights.types = floating_types;
  tensor_text indices{.name = "indices",
                      .shapes = everywhere("B S n"),
                      .types = dtype::i32,
                      .holds = tensor_contents::indices_or_none,
                      .counts = "S"};
  if (where == direction::forward) indices.shapes = {"-", "-", "-", "B S n", "B S n", "B S n"};
  const tensor_text selected{.name = "selected_indices",
                             .types = dtype::i32,
                             .use = tensor_use::output,
                             .free = true,
                             .file_name = "indices"};
  return declared::with(flash_mla_table::input_texts, index_query, of_indexer("k_index", "B S Di"),
                        index_weights, scales_of("q_index_scale", "B S Hi"),
                        scales_of("k_index_scale", "B S"), indices,
                        flash_mla_table::score_texts("Hq? ns"), flash_mla_table::results_for(where),
                        of_selecting(selected, "B S K"), flash_mla_table::gradient_texts,
                        flash_mla_table::score_gradient_texts("Hq? ns"));
}
inline constexpr auto forward_texts = tensors_of(direction::forward);
inline constexpr auto backward_texts = tensors_of(direction::backward);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(forward_texts, name);
}

inline constexpr auto option_forms =
    declared::with(flash_mla_table::scale_option_forms<options>,
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
                   flash_mla_table::score_option_forms<options>);
using numbers = flash_mla_table::score_tensor_numbers<forward_texts>;
inline constexpr std::array multiples{multiple_rule{dim_of("Hq"), dim_of("Hkv")}};

inline int layout_of(const bound_call& call) {
  const int given = call.has(tensor("indices")) ? static_cast<int>(backward_layouts.size()) : 0;
  return flash_mla_table::layout_of(call) + given;
}

inline constexpr signature form =
    declared::signature_of<deepseek_attn_problem, forward_texts, dims, layouts>({
        .options = option_forms,
        .rules = numbers::rules,
        .multiples = multiples,
        .layout_of = &layout_of,
    });
inline constexpr signature backward_form =
    declared::signature_of<deepseek_attn_problem, backward_texts, dims, backward_layouts>({
        .options = option_forms,
        .rules = numbers::rules,
        .multiples = multiples,
        .layout_of = &flash_mla_table::layout_of,
    });

// Where a kernel finds them.

inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;
inline constexpr std::size_t indexer = offsetof(kernel, indexer);
inline constexpr auto size_texts = declared::with(
    flash_mla_table::size_texts, size_text{"Hi", indexer + offsetof(key_indexer, heads)},
    size_text{"Di", indexer + offsetof(key_indexer, width)},
    size_text{"n", indexer + offsetof(key_indexer, slots)},
    size_text{"ns", offsetof(kernel, sink_count)});
inline constexpr auto sizes = declared::sizes_in(size_texts, form);
inline constexpr auto backward_sizes = declared::sizes_in(size_texts, backward_form);

consteval binding_text slots_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(key_slots, data),
          {{{"B", at + offsetof(key_slots, entry)},
            {"S", at + offsetof(key_slots, token)},
            {"n|K", at + offsetof(key_slots, slot)}}}};
}
inline constexpr auto binding_texts =
    declared::with(flash_mla_table::binding_texts,
                   rows_at("q_index", indexer + offsetof(key_indexer, q), "S", "Hi"),
                   rows_at("k_index", indexer + offsetof(key_indexer, k)),
                   rows_at("index_weights", indexer + offsetof(key_indexer, weights)),
                   rows_at("q_index_scale", indexer + offsetof(key_indexer, q_scale), "S", "Hi"),
                   rows_at("k_index_scale", indexer + offsetof(key_indexer, k_scale)),
                   slots_at("indices", indexer + offsetof(key_indexer, given)),
                   slots_at("selected_indices", indexer + offsetof(key_indexer, selected)),
                   flash_mla_table::sink_gradients_at("ns"), flash_mla_table::sinks_at("Hq", "ns"));
inline constexpr auto bindings = declared::bindings_in(binding_texts, form);
inline constexpr auto backward_bindings = declared::bindings_in(binding_texts, backward_form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  flash_mla_table::finish_expanded<numbers>(call, wanted, filled);
  const double index_scale = wanted.index_scale.value_or(1.0);
  filled.indexer.sign = index_scale > 0 ? 1.0f : index_scale < 0 ? -1.0f : 0.0f;
  filled.indexer.force_self = wanted.force_self;
  if (filled.indexer.given.data == nullptr) {
    filled.indexer.topk = std::min(wanted.index_topk, filled.length);
    filled.indexer.slots = filled.indexer.topk + (wanted.force_self ? 1 : 0);
  }
}

/// `q_pe` lies in `q`, and scores are bound by hand.
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);
inline constexpr lowering backward_lower =
    declared::lowering_of<kernel_defaults>(backward_sizes, backward_bindings, &finish, true);

inline constexpr std::array operations{
    declared::operation_of(
        "deepseek_attn", 0, form, lower,
        "ckv! w_kc! w_vc! k_pe q_pe q! q_index! k_index! index_weights! "
        "q_index_scale k_index_scale indices! bias_post mask sinks out! lse selected_indices"),
    declared::operation_of("deepseek_attn_backward", 1, backward_form, backward_lower,
                           "ckv! w_kc! w_vc! k_pe q_pe q! indices! bias_post mask sinks out! lse! "
                           "d_out! d_lse d_ckv! d_w_kc! d_w_vc! d_k_pe! d_q_pe! d_q! d_bias_post "
                           "d_sinks"),
};

}  // namespace tessera::deepseek_attn_table
