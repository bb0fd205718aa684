// Which configs of fused losses are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/losses/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace losses_rules {

inline constexpr row_rule sm90_rows_are_products_of_bf16{
    "a row of cuda_sm90 is linear_cross_entropy of bf16"};
inline constexpr row_rule cuda_products_have_a_type{
    "type of a CUDA row of linear_cross_entropy is f32, f16 or bf16"};
inline constexpr row_rule cuda_gradients_are_not_f16{
    "type of a CUDA row of gradients is f32 or bf16: those of logits are too small for f16"};
inline constexpr row_rule other_rows_take_any_type{
    "type of a row that is no product on a GPU is none"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16: losses are computed in f32"};

}  // namespace losses_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(losses_config config) noexcept {
  using namespace losses_rules;
  if (config.target == backend::cuda_sm90 &&
      (config.loss != loss_kind::linear_cross_entropy || config.type != dtype::bf16)) {
    return &sm90_rows_are_products_of_bf16;
  }
  if (is_cuda(config.target) && config.loss == loss_kind::linear_cross_entropy) {
    if (!is_floating_16_or_32(config.type)) return &cuda_products_have_a_type;
    const bool small = config.type == dtype::f16 && config.pass == loss_pass::backward;
    if (small) return &cuda_gradients_are_not_f16;
    return nullptr;
  }
  if (config.type != dtype::none) return &other_rows_take_any_type;
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(losses_config config) noexcept {
  using namespace losses_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) return &bf16_instructions_add_nothing;
  return nullptr;
}

}  // namespace tessera
