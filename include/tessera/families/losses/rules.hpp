// Which configs of fused losses are legal. Written once: the generator drops rows by `broken_rule`,
// an assertion in the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/losses/config.hpp>

namespace tessera {

enum class losses_rule : std::uint8_t {
  none,
  sm90_rows_are_products_of_bf16,
  cuda_products_have_a_type,
  cuda_gradients_are_not_f16,
  other_rows_take_any_type,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(losses_rule rule) noexcept {
  switch (rule) {
    case losses_rule::none:
      return "the row is legal";
    case losses_rule::sm90_rows_are_products_of_bf16:
      return "a row of cuda_sm90 is linear_cross_entropy of bf16";
    case losses_rule::cuda_products_have_a_type:
      return "type of a CUDA row of linear_cross_entropy is f32, f16 or bf16";
    case losses_rule::cuda_gradients_are_not_f16:
      return "type of a CUDA row of gradients is f32 or bf16: those of logits are too small for "
             "f16";
    case losses_rule::other_rows_take_any_type:
      return "type of a row that is no product on a GPU is none";
    case losses_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16: losses are computed in f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr losses_rule broken_rule(losses_config config) noexcept {
  using enum losses_rule;
  if (config.target == backend::cuda_sm90 &&
      (config.loss != loss_kind::linear_cross_entropy || config.type != dtype::bf16)) {
    return sm90_rows_are_products_of_bf16;
  }
  if (is_cuda(config.target) && config.loss == loss_kind::linear_cross_entropy) {
    if (!is_floating_16_or_32(config.type)) return cuda_products_have_a_type;
    const bool small = config.type == dtype::f16 && config.pass == loss_pass::backward;
    return small ? cuda_gradients_are_not_f16 : none;
  }
  return config.type == dtype::none ? none : other_rows_take_any_type;
}

/// What a row of the generated table must meet besides.
constexpr losses_rule broken_table_rule(losses_config config) noexcept {
  const losses_rule broken = broken_rule(config);
  if (broken != losses_rule::none) return broken;
  return has_bf16_products(config.target) ? losses_rule::bf16_instructions_add_nothing
                                          : losses_rule::none;
}

}  // namespace tessera
