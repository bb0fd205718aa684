// Which configs of latent attention are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/latent_attention/config.hpp>

namespace tessera {

enum class latent_attention_rule : std::uint8_t {
  none,
  sm90_rows_are_of_wgmma,
  type_is_of_matrix_units,
  gradients_are_of_expanded_latents,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(latent_attention_rule rule) noexcept {
  switch (rule) {
    case latent_attention_rule::none:
      return "the row is legal";
    case latent_attention_rule::sm90_rows_are_of_wgmma:
      return "cuda_sm90 rows are forward, of expanded latents of bf16, with selected keys or "
             "without, or absorbed ones of f16 or bf16; all else is cuda_sm80, whose code runs on "
             "every later GPU";
    case latent_attention_rule::type_is_of_matrix_units:
      return "rows of a type are CUDA rows, forward, of absorbed latents of f16 or bf16 or "
             "expanded ones of bf16, which f16 may not hold, or rows of cpu_avx512_bf16 and "
             "cpu_amx_bf16, forward, of absorbed latents of bf16; others take any type";
    case latent_attention_rule::gradients_are_of_expanded_latents:
      return "backward rows are of expanded latents: caches of latents have no gradients";
    case latent_attention_rule::bf16_instructions_add_nothing:
      return "table rows of any type are not of cpu_avx512_bf16 or cpu_amx_bf16: their products "
             "are of f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr latent_attention_rule broken_rule(latent_attention_config config) noexcept {
  const bool forward = config.pass == latent_pass::forward;
  const bool dense = config.form != latent_form::absorbed && forward && config.type == dtype::bf16;
  const bool over_pages = config.form == latent_form::absorbed && forward &&
                          (config.type == dtype::f16 || config.type == dtype::bf16);
  if (config.target == backend::cuda_sm90 && !(over_pages || dense)) {
    return latent_attention_rule::sm90_rows_are_of_wgmma;
  }
  if (!forward && config.form == latent_form::absorbed) {
    return latent_attention_rule::gradients_are_of_expanded_latents;
  }
  const bool pairs = has_bf16_products(config.target) && over_pages && config.type == dtype::bf16;
  if (config.type != dtype::none && !pairs && !(is_cuda(config.target) && (over_pages || dense))) {
    return latent_attention_rule::type_is_of_matrix_units;
  }
  return latent_attention_rule::none;
}

/// What a row of the generated table must meet besides.
constexpr latent_attention_rule broken_table_rule(latent_attention_config config) noexcept {
  const latent_attention_rule broken = broken_rule(config);
  if (broken != latent_attention_rule::none) return broken;
  const bool unused = has_bf16_products(config.target) && config.type == dtype::none;
  return unused ? latent_attention_rule::bf16_instructions_add_nothing
                : latent_attention_rule::none;
}

}  // namespace tessera
