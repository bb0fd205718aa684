// Fused linear cross entropy, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/linear_cross_entropy_args.hpp>
#include <tessera/families/losses/linear_cross_entropy_options.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/families/losses/token_forms.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::linear_cross_entropy_table {

using options = linear_cross_entropy_options;

inline constexpr std::array dims{
    loss_forms::nest,   loss_forms::group,   loss_forms::batch,
    loss_forms::length, loss_forms::classes, dim{.symbol = "H", .label = "columns", .least = 1}};

inline constexpr loss_forms::axes_texts hidden_axes{"T H", "B T H", "G B T H", "N G B T H"};
inline constexpr loss_forms::axes_texts sums_axes{"T 2", "B T 2", "G B T 2", "N G B T 2"};
inline constexpr loss_forms::texts of_hidden = loss_forms::in_layouts(hidden_axes, hidden_axes);
inline constexpr auto of_weight = declared::everywhere("H V");
inline constexpr auto of_bias = declared::everywhere("V");

constexpr tensor_text parameter(std::string_view name, const loss_forms::texts& shapes) {
  return {.name = name,
          .shapes = shapes,
          .types = dtype::f32,
          .like = "hidden",
          .contiguous_rows = true};
}
/// Of the type of what it belongs to.
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  text.types = floating_types;
  text.like = {};
  return loss_forms::gradient_of(of, text);
}
constexpr tensor_text hidden(std::string_view name) {
  return {.name = name, .shapes = of_hidden, .types = floating_types, .contiguous_rows = true};
}
constexpr tensor_text weight(std::string_view name) {
  tensor_text text = parameter(name, of_weight);
  text.aligned_rows = true;
  return text;
}
constexpr tensor_text bias(std::string_view name) {
  tensor_text text = parameter(name, of_bias);
  text.free = true;
  return text;
}
/// What the loss leaves for gradients, which are computed in another way with them.
constexpr tensor_text logit_sums(tensor_use use) {
  return {.name = "logit_sums",
          .shapes = loss_forms::in_layouts(sums_axes, sums_axes),
          .types = dtype::f32,
          .use = use,
          .contiguous_rows = true,
          .free = use == tensor_use::output};
}

consteval auto tensors_with(tensor_use sums) {
  return std::array{
      hidden("hidden"),
      weight("lm_head_weight"),
      bias("lm_head_bias"),
      tensor_text{.name = "targets", .shapes = loss_forms::of_tokens, .types = dtype::i32},
      loss_forms::of_each_token("weights", dtype::f32),
      loss_forms::of_each_token("mask", dtype::u8),
      loss_forms::loss_output(),
      loss_forms::reduced_like_loss("z_loss"),
      loss_forms::one_number("weight_sum"),
      loss_forms::one_number("accuracy"),
      logit_sums(sums),
      tensor_text{.name = "d_loss", .shapes = loss_forms::of_losses, .types = dtype::f32},
      gradient_of("hidden", hidden("d_hidden")),
      gradient_of("lm_head_weight", parameter("d_lm_head_weight", of_weight)),
      gradient_of("lm_head_bias", bias("d_lm_head_bias")),
  };
}
inline constexpr auto tensor_texts = tensors_with(tensor_use::output);
inline constexpr auto backward_texts = tensors_with(tensor_use::input);
inline constexpr auto layouts = std::span(loss_forms::layouts).first<loss_forms::hard_layouts>();
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array option_forms{
    loss_forms::reduction(offsetof(options, reduction)),
    loss_forms::ignore_index(offsetof(options, ignore_index)),
    loss_forms::label_smoothing(offsetof(options, label_smoothing)),
    loss_forms::z_loss(offsetof(options, z_loss)),
    option_form{.name = "logits_soft_cap",
                .offset = offsetof(options, logits_soft_cap),
                .type = option_type::optional_number,
                .limit = option_limit::positive_float,
                .free = true},
    loss_forms::world_size(offsetof(options, world_size)),
};

inline constexpr std::array rules{
    tensor_rule{tensor("d_lm_head_bias"),
                [](const bound_call& call) {
                  return call.has(static_cast<std::size_t>(tensor("lm_head_bias")));
                },
                "is given, lm_head_bias is absent"},
};

inline int layout_of(const bound_call& call) {
  return loss_forms::layout_of(call.tensors[0].rank, call.options_as<options>().reduction, false);
}

inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  constexpr auto classes = static_cast<std::size_t>(declared::dim_named(dims, "V"));
  return loss_forms::is_not_negative(wanted.z_loss, failure) &&
         loss_forms::are_equal_parts(call, wanted.world_size, classes, "lm_head_weight", failure);
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<linear_cross_entropy_problem, Texts, dims, layouts, tensor_texts>({
      .options = option_forms,
      .rules = rules,
      .layout_of = &layout_of,
      .hook = &hook,
  });
}
inline constexpr signature form = form_of<tensor_texts>();
inline constexpr signature backward_form = form_of<backward_texts>();

// Where a kernel finds them.

using kernel = linear_cross_entropy_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<losses_kernel_args>;
inline constexpr std::size_t base = offsetof(losses_kernel_args, linear_cross_entropy);
inline constexpr std::size_t tokens = base + offsetof(kernel, tokens);
inline constexpr std::size_t of_form = base + offsetof(kernel, form);

/// Rows of a weight or a bias.
consteval binding_text parameter_at(std::string_view name, std::size_t at) {
  at += base;
  return {name,
          at + offsetof(parameter_rows, data),
          {{{"H", at + offsetof(parameter_rows, row)}}},
          at + offsetof(parameter_rows, type)};
}
inline constexpr auto bindings = declared::bindings_in(
    declared::with(loss_forms::token_bindings(tokens),
                   loss_forms::rows_at("targets", tokens + offsetof(loss_tokens, targets)),
                   loss_forms::rows_at("z_loss", of_form + offsetof(cross_entropy_form, z_part)),
                   binding_text{"accuracy", of_form + offsetof(cross_entropy_form, accuracy)},
                   loss_forms::rows_at("logit_sums", base + offsetof(kernel, logit_sums)),
                   loss_forms::rows_at("hidden", base + offsetof(kernel, hidden)),
                   loss_forms::rows_at("d_hidden", base + offsetof(kernel, d_hidden)),
                   parameter_at("lm_head_weight", offsetof(kernel, weight)),
                   parameter_at("d_lm_head_weight", offsetof(kernel, d_weight)),
                   parameter_at("lm_head_bias", offsetof(kernel, bias)),
                   parameter_at("d_lm_head_bias", offsetof(kernel, d_bias))),
    form);
inline constexpr auto sizes =
    declared::sizes_in(declared::with(loss_forms::token_sizes(tokens),
                                      size_text{"H", base + offsetof(kernel, columns)}),
                       form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<losses_kernel_args*>(to)->linear_cross_entropy;
  const options& wanted = call.options_as<options>();
  filled.tokens.reduction = wanted.reduction;
  filled.tokens.ignore_index = wanted.ignore_index;
  filled.tokens.parts = wanted.world_size;
  filled.form.label_smoothing = wanted.label_smoothing;
  filled.form.z_loss = wanted.z_loss;
  filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0));
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("fused_linear_cross_entropy", 0, form, lower,
                           "hidden! lm_head_weight! lm_head_bias targets! weights mask loss! "
                           "z_loss weight_sum accuracy logit_sums"),
    declared::operation_of("fused_linear_cross_entropy_backward", 1, backward_form, lower,
                           "hidden! lm_head_weight! lm_head_bias targets! weights mask d_loss! "
                           "logit_sums d_hidden! d_lm_head_weight! d_lm_head_bias"),
};

}  // namespace tessera::linear_cross_entropy_table
