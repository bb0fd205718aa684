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
  sm90_rows_are_blocksparse_forward,
  cpu_rows_take_any_type,
  matrix_unit_takes_16_bits,
  matrix_unit_head_dim_is_64_or_128,
  matrix_unit_goes_backward_over_blocks,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(sparse_attention_rule rule) noexcept {
  switch (rule) {
    case sparse_attention_rule::none:
      return "the row is legal";
    case sparse_attention_rule::sm90_rows_are_blocksparse_forward:
      return "cuda_sm90 rows are of blocksparse attention, forward, of f16 or bf16; all else is "
             "cuda_sm80, whose code runs on every later GPU";
    case sparse_attention_rule::cpu_rows_take_any_type:
      return "type and head_dim of a CPU row are none and 0: it takes any";
    case sparse_attention_rule::matrix_unit_takes_16_bits:
      return "type of a CUDA row is f16 or bf16, or none with head_dim 0, which takes any";
    case sparse_attention_rule::matrix_unit_head_dim_is_64_or_128:
      return "head_dim of a CUDA row with a type is 64 or 128";
    case sparse_attention_rule::matrix_unit_goes_backward_over_blocks:
      return "pass of a CUDA row with a type is forward, unless its pattern is blocksparse";
    case sparse_attention_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help products in "
             "f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr sparse_attention_rule broken_rule(sparse_attention_config config) noexcept {
  using enum sparse_attention_rule;
  const bool any = config.type == dtype::none && config.head_dim == 0;
  if (is_cpu(config.target)) return any ? none : cpu_rows_take_any_type;
  const bool forward = config.pass == sparse_pass::forward;
  if (config.target == backend::cuda_sm90 &&
      (any || !forward || config.pattern != sparse_pattern::blocksparse)) {
    return sm90_rows_are_blocksparse_forward;
  }
  if (any) return none;
  if (config.type != dtype::f16 && config.type != dtype::bf16) return matrix_unit_takes_16_bits;
  if (config.head_dim != 64 && config.head_dim != 128) return matrix_unit_head_dim_is_64_or_128;
  return forward || config.pattern == sparse_pattern::blocksparse
             ? none
             : matrix_unit_goes_backward_over_blocks;
}

/// What a row of the generated table must meet besides.
constexpr sparse_attention_rule broken_table_rule(sparse_attention_config config) noexcept {
  const sparse_attention_rule broken = broken_rule(config);
  if (broken != sparse_attention_rule::none) return broken;
  return has_bf16_products(config.target) ? sparse_attention_rule::bf16_instructions_add_nothing
                                          : sparse_attention_rule::none;
}

}  // namespace tessera
