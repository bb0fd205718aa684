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
  sm90_rows_are_forward_of_16_bits,
  cpu_rows_of_a_type_are_forward,
  cpu_types_have_products,
  matrix_unit_takes_16_bits,
  head_dim_of_a_type_is_64_or_128,
  matrix_unit_goes_backward_over_blocks,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(sparse_attention_rule rule) noexcept {
  switch (rule) {
    case sparse_attention_rule::none:
      return "the row is legal";
    case sparse_attention_rule::sm90_rows_are_forward_of_16_bits:
      return "cuda_sm90 rows are forward, of f16 or bf16; all else is cuda_sm80, whose code runs "
             "on every later GPU";
    case sparse_attention_rule::cpu_rows_of_a_type_are_forward:
      return "pass of a CPU row with a type is forward, but of a blocksparse row with head_dim 0 "
             "for products of bf16; type none with head_dim 0 takes any";
    case sparse_attention_rule::cpu_types_have_products:
      return "type of a CPU row is f32, f16 or bf16, and bf16 where products of bf16 are an "
             "instruction";
    case sparse_attention_rule::matrix_unit_takes_16_bits:
      return "type of a CUDA row is f16 or bf16, or none with head_dim 0, which takes any";
    case sparse_attention_rule::head_dim_of_a_type_is_64_or_128:
      return "head_dim of a row with a type is 64 or 128";
    case sparse_attention_rule::matrix_unit_goes_backward_over_blocks:
      return "pass of a CUDA row with a type is forward, unless its pattern is blocksparse";
    case sparse_attention_rule::bf16_instructions_add_nothing:
      return "table rows of any type are not of back ends with products of bf16, which do not help "
             "those in f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr sparse_attention_rule broken_rule(sparse_attention_config config) noexcept {
  using enum sparse_attention_rule;
  const bool any = config.type == dtype::none && config.head_dim == 0;
  const bool forward = config.pass == sparse_pass::forward;
  const bool some_head_dim = config.head_dim == 64 || config.head_dim == 128;
  if (is_cpu(config.target)) {
    if (any) return none;
    const bool of_bf16 = config.type == dtype::bf16;
    if (!forward) {
      const bool of_blocks = config.pattern == sparse_pattern::blocksparse && config.head_dim == 0;
      return of_blocks && of_bf16 && has_bf16_products(config.target)
                 ? none
                 : cpu_rows_of_a_type_are_forward;
    }
    const bool of_floats = config.type == dtype::f32 || config.type == dtype::f16;
    if (!of_bf16 && (!of_floats || has_bf16_products(config.target))) {
      return cpu_types_have_products;
    }
    return some_head_dim ? none : head_dim_of_a_type_is_64_or_128;
  }
  if (config.target == backend::cuda_sm90 && (any || !forward)) {
    return sm90_rows_are_forward_of_16_bits;
  }
  if (any) return none;
  if (config.type != dtype::f16 && config.type != dtype::bf16) return matrix_unit_takes_16_bits;
  if (!some_head_dim) return head_dim_of_a_type_is_64_or_128;
  return forward || config.pattern == sparse_pattern::blocksparse
             ? none
             : matrix_unit_goes_backward_over_blocks;
}

/// What a row of the generated table must meet besides.
constexpr sparse_attention_rule broken_table_rule(sparse_attention_config config) noexcept {
  const sparse_attention_rule broken = broken_rule(config);
  if (broken != sparse_attention_rule::none) return broken;
  return has_bf16_products(config.target) && config.type == dtype::none
             ? sparse_attention_rule::bf16_instructions_add_nothing
             : sparse_attention_rule::none;
}

}  // namespace tessera
