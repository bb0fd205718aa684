// Which configs of latent attention are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace latent_attention_rules {

inline constexpr row_rule sm90_rows_are_of_wgmma{
    "cuda_sm90 rows are forward, of expanded latents of bf16, with selected keys or without, or "
    "absorbed ones of f16 or bf16; all else is cuda_sm80, whose code runs on every later GPU"};
inline constexpr row_rule type_is_of_matrix_units{
    "rows of a type are CUDA rows, forward, of absorbed latents of f16 or bf16 or expanded ones of "
    "bf16, which f16 may not hold, or rows of cpu_avx512_bf16 and cpu_amx_bf16, forward, of "
    "absorbed latents of bf16; others take any type"};
inline constexpr row_rule gradients_are_of_expanded_latents{
    "backward rows are of expanded latents: caches of latents have no gradients"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows of any type are not of cpu_avx512_bf16 or cpu_amx_bf16: their products are of f32"};

}  // namespace latent_attention_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(latent_attention_config config) noexcept {
  using namespace latent_attention_rules;
  const bool forward = config.pass == latent_pass::forward;
  const bool dense = config.form != latent_form::absorbed && forward && config.type == dtype::bf16;
  const bool over_pages = config.form == latent_form::absorbed && forward &&
                          (config.type == dtype::f16 || config.type == dtype::bf16);
  if (config.target == backend::cuda_sm90 && !(over_pages || dense)) {
    return &sm90_rows_are_of_wgmma;
  }
  if (!forward && config.form == latent_form::absorbed) {
    return &gradients_are_of_expanded_latents;
  }
  const bool pairs = has_bf16_products(config.target) && over_pages && config.type == dtype::bf16;
  if (config.type != dtype::none && !pairs && !(is_cuda(config.target) && (over_pages || dense))) {
    return &type_is_of_matrix_units;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(latent_attention_config config) noexcept {
  using namespace latent_attention_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  const bool unused = has_bf16_products(config.target) && config.type == dtype::none;
  if (unused) return &bf16_instructions_add_nothing;
  return nullptr;
}

}  // namespace tessera
