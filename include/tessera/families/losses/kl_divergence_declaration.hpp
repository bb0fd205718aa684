// Fused KL divergence, declared: tensors, dims, options, and where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/kl_divergence_args.hpp>
#include <tessera/families/losses/kl_divergence_options.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/families/losses/token_forms.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::kl_divergence_table {

using options = kl_divergence_options;

inline constexpr std::array dims{loss_forms::nest, loss_forms::group, loss_forms::batch,
                                 loss_forms::length, loss_forms::classes};

constexpr tensor_text logits(std::string_view name) {
  return {.name = name,
          .shapes = loss_forms::of_classes,
          .types = floating_types,
          .contiguous_rows = true};
}
constexpr tensor_text gradient_of_logits() {
  tensor_text text = loss_forms::gradient_of("student_logits", logits("d_student_logits"));
  text.types = {};
  text.like = "student_logits";
  text.shares = "student_logits";
  return text;
}

inline constexpr std::array tensor_texts{
    logits("student_logits"),
    logits("teacher_logits"),
    loss_forms::of_each_token("weights", dtype::f32),
    loss_forms::of_each_token("mask", dtype::u8),
    loss_forms::loss_output(),
    loss_forms::one_number("weight_sum"),
    loss_forms::reduced_like_loss("teacher_entropy"),
    tensor_text{.name = "d_loss", .shapes = loss_forms::of_losses, .types = dtype::f32},
    gradient_of_logits(),
};
inline constexpr auto layouts = std::span(loss_forms::layouts).first<loss_forms::hard_layouts>();

inline constexpr std::array option_forms{
    loss_forms::reduction(offsetof(options, reduction)),
    option_form{.name = "direction",
                .offset = offsetof(options, direction),
                .type = option_type::choice,
                .enumerators = kl_direction_names,
                .free = true},
    option_form{.name = "temperature",
                .offset = offsetof(options, temperature),
                .type = option_type::number,
                .limit = option_limit::positive_float,
                .free = true},
    option_form{.name = "beta",
                .offset = offsetof(options, beta),
                .type = option_type::number,
                .limit = option_limit::probability,
                .free = true},
    loss_forms::world_size(offsetof(options, world_size)),
};

inline int layout_of(const bound_call& call) {
  return loss_forms::layout_of(call.tensors[0].rank, call.options_as<options>().reduction, false);
}

inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  if (wanted.beta == 0) {
    return checks::refuse(failure, "beta: is ", wanted.beta, ", must be above 0 and below 1");
  }
  constexpr auto classes = static_cast<std::size_t>(declared::dim_named(dims, "V"));
  return loss_forms::are_equal_parts(call, wanted.world_size, classes, "student_logits", failure);
}

inline constexpr signature form =
    declared::signature_of<kl_divergence_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = kl_divergence_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<losses_kernel_args>;
inline constexpr std::size_t base = offsetof(losses_kernel_args, kl_divergence);
inline constexpr std::size_t tokens = base + offsetof(kernel, tokens);

inline constexpr auto bindings = declared::bindings_in(
    declared::with(loss_forms::token_bindings(tokens),
                   loss_forms::rows_at("teacher_entropy", base + offsetof(kernel, teacher_entropy)),
                   loss_forms::rows_at("student_logits", base + offsetof(kernel, student)),
                   loss_forms::rows_at("teacher_logits", base + offsetof(kernel, teacher)),
                   loss_forms::rows_at("d_student_logits", base + offsetof(kernel, d_student))),
    form);
inline constexpr auto sizes = declared::sizes_in(loss_forms::token_sizes(tokens), form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<losses_kernel_args*>(to)->kl_divergence;
  const options& wanted = call.options_as<options>();
  filled.tokens.reduction = wanted.reduction;
  filled.tokens.parts = wanted.world_size;
  filled.direction = wanted.direction;
  filled.temperature = wanted.temperature;
  filled.beta = wanted.beta;
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("fused_kl_divergence", 0, form, lower,
                           "student_logits! teacher_logits! weights mask loss! weight_sum "
                           "teacher_entropy"),
    declared::operation_of("fused_kl_divergence_backward", 1, form, lower,
                           "student_logits! teacher_logits! weights mask d_loss! "
                           "d_student_logits!"),
};

}  // namespace tessera::kl_divergence_table
