// Fused cross entropy, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/losses/cross_entropy_args.hpp>
#include <tessera/families/losses/cross_entropy_options.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/families/losses/token_forms.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::cross_entropy_table {

using options = cross_entropy_options;

inline constexpr std::array dims{loss_forms::nest, loss_forms::group, loss_forms::batch,
                                 loss_forms::length, loss_forms::classes};

inline constexpr loss_forms::texts of_targets =
    loss_forms::in_layouts(loss_forms::token_axes, loss_forms::no_axes);
inline constexpr loss_forms::texts of_shares =
    loss_forms::in_layouts(loss_forms::no_axes, loss_forms::class_axes);
inline constexpr loss_forms::texts with_targets =
    loss_forms::in_layouts(loss_forms::one_number_axes, loss_forms::no_axes);

constexpr tensor_text shares(std::string_view name) {
  return {.name = name,
          .shapes = of_shares,
          .types = dtype::f32,
          .like = "logits",
          .contiguous_rows = true,
          .elsewhere = "is given, soft_targets is absent"};
}
/// Of the type of soft_targets.
constexpr tensor_text gradient_of_shares() {
  tensor_text text = loss_forms::gradient_of("soft_targets", shares("d_soft_targets"));
  text.types = floating_types;
  text.like = {};
  text.shares = "soft_targets";
  text.free = true;
  return text;
}
constexpr tensor_text gradient_of_logits() {
  tensor_text text = loss_forms::gradient_of("logits", {.name = "d_logits",
                                                        .shapes = loss_forms::of_classes,
                                                        .like = "logits",
                                                        .contiguous_rows = true,
                                                        .shares = "logits"});
  return text;
}
constexpr tensor_text accuracy() {
  tensor_text text = loss_forms::one_number("accuracy");
  text.shapes = with_targets;
  text.elsewhere = "is given with soft_targets, which name no class";
  return text;
}

inline constexpr std::array tensor_texts{
    tensor_text{.name = "logits",
                .shapes = loss_forms::of_classes,
                .types = floating_types,
                .contiguous_rows = true},
    tensor_text{.name = "targets",
                .shapes = of_targets,
                .types = dtype::i32,
                .elsewhere = "is given with soft_targets; a token has one or the other"},
    shares("soft_targets"),
    loss_forms::of_each_token("weights", dtype::f32),
    loss_forms::of_each_token("mask", dtype::u8),
    loss_forms::loss_output(),
    loss_forms::reduced_like_loss("z_loss"),
    loss_forms::one_number("weight_sum"),
    accuracy(),
    tensor_text{.name = "d_loss", .shapes = loss_forms::of_losses, .types = dtype::f32},
    gradient_of_logits(),
    gradient_of_shares(),
};
consteval std::size_t tensor(std::string_view name) {
  return static_cast<std::size_t>(declared::tensor_named(tensor_texts, name));
}

inline constexpr std::array option_forms{
    loss_forms::reduction(offsetof(options, reduction)),
    loss_forms::ignore_index(offsetof(options, ignore_index)),
    loss_forms::label_smoothing(offsetof(options, label_smoothing)),
    loss_forms::z_loss(offsetof(options, z_loss)),
    loss_forms::world_size(offsetof(options, world_size)),
};

inline int layout_of(const bound_call& call) {
  return loss_forms::layout_of(call.tensors[tensor("logits")].rank,
                               call.options_as<options>().reduction,
                               call.has(tensor("soft_targets")));
}

inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  if (call.has(tensor("soft_targets")) && wanted.label_smoothing != 0) {
    return checks::refuse(failure, "label_smoothing: is ", wanted.label_smoothing,
                          ", must be 0: soft_targets give every class its share");
  }
  constexpr auto classes = static_cast<std::size_t>(declared::dim_named(dims, "V"));
  return loss_forms::is_not_negative(wanted.z_loss, failure) &&
         loss_forms::are_equal_parts(call, wanted.world_size, classes, "logits", failure);
}

inline constexpr signature form =
    declared::signature_of<cross_entropy_problem, tensor_texts, dims, loss_forms::layouts>({
        .options = option_forms,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = cross_entropy_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<losses_kernel_args>;
inline constexpr std::size_t base = offsetof(losses_kernel_args, cross_entropy);
inline constexpr std::size_t tokens = base + offsetof(kernel, tokens);
inline constexpr std::size_t of_form = base + offsetof(kernel, form);

inline constexpr auto bindings = declared::bindings_in(
    declared::with(loss_forms::token_bindings(tokens),
                   loss_forms::rows_at("targets", tokens + offsetof(loss_tokens, targets)),
                   loss_forms::rows_at("z_loss", of_form + offsetof(cross_entropy_form, z_part)),
                   binding_text{"accuracy", of_form + offsetof(cross_entropy_form, accuracy)},
                   loss_forms::rows_at("logits", base + offsetof(kernel, logits)),
                   loss_forms::rows_at("soft_targets", base + offsetof(kernel, soft_targets)),
                   loss_forms::rows_at("d_logits", base + offsetof(kernel, d_logits)),
                   loss_forms::rows_at("d_soft_targets", base + offsetof(kernel, d_soft_targets))),
    form);
inline constexpr auto sizes = declared::sizes_in(loss_forms::token_sizes(tokens), form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<losses_kernel_args*>(to)->cross_entropy;
  const options& wanted = call.options_as<options>();
  filled.tokens.reduction = wanted.reduction;
  filled.tokens.ignore_index = wanted.ignore_index;
  filled.tokens.parts = wanted.world_size;
  filled.form.label_smoothing = wanted.label_smoothing;
  filled.form.z_loss = wanted.z_loss;
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("fused_cross_entropy", 0, form, lower,
                           "logits! targets! soft_targets weights mask loss! z_loss weight_sum "
                           "accuracy"),
    declared::operation_of("fused_cross_entropy_backward", 1, form, lower,
                           "logits! targets! soft_targets weights mask d_loss! d_logits! "
                           "d_soft_targets"),
};

}  // namespace tessera::cross_entropy_table
