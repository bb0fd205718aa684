// Which configs of sparse attention are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/sparse_attention/config.hpp>

namespace tessera {

enum class sparse_attention_rule : std::uint8_t {
  none,
  cuda_rows_are_sm80,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(sparse_attention_rule rule) noexcept {
  switch (rule) {
    case sparse_attention_rule::none:
      return "the row is legal";
    case sparse_attention_rule::cuda_rows_are_sm80:
      return "target of a CUDA row is cuda_sm80, whose code runs on every later GPU";
    case sparse_attention_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help products in "
             "f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr sparse_attention_rule broken_rule(sparse_attention_config config) noexcept {
  return is_cpu(config.target) || config.target == backend::cuda_sm80
             ? sparse_attention_rule::none
             : sparse_attention_rule::cuda_rows_are_sm80;
}

/// What a row of the generated table must meet besides.
constexpr sparse_attention_rule broken_table_rule(sparse_attention_config config) noexcept {
  const sparse_attention_rule broken = broken_rule(config);
  if (broken != sparse_attention_rule::none) return broken;
  return has_bf16_products(config.target) ? sparse_attention_rule::bf16_instructions_add_nothing
                                          : sparse_attention_rule::none;
}

}  // namespace tessera
