// Which configs of sparse attention are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace sparse_attention_rules {

inline constexpr row_rule sm90_rows_are_forward_of_16_bits{
    "cuda_sm90 rows are forward, of f16 or bf16; all else is cuda_sm80, whose code runs on every "
    "later GPU"};
inline constexpr row_rule cpu_rows_of_a_type_are_forward{
    "pass of a CPU row with a type is forward, but of a blocksparse row with head_dim 0 for "
    "products of bf16; type none with head_dim 0 takes any"};
inline constexpr row_rule cpu_types_have_products{
    "type of a CPU row is f32, f16 or bf16, and bf16 where products of bf16 are an instruction"};
inline constexpr row_rule matrix_unit_takes_16_bits{
    "type of a CUDA row is f16 or bf16, or none with head_dim 0, which takes any"};
inline constexpr row_rule head_dim_of_a_type_is_64_or_128{
    "head_dim of a row with a type is 64 or 128"};
inline constexpr row_rule matrix_unit_goes_backward_over_blocks{
    "pass of a CUDA row with a type is forward, unless its pattern is blocksparse"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows of any type are not of back ends with products of bf16, which do not help those in "
    "f32"};

}  // namespace sparse_attention_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(sparse_attention_config config) noexcept {
  using namespace sparse_attention_rules;
  const bool any = config.type == dtype::none && config.head_dim == 0;
  const bool forward = config.pass == sparse_pass::forward;
  const bool some_head_dim = config.head_dim == 64 || config.head_dim == 128;
  if (is_cpu(config.target)) {
    if (any) return nullptr;
    const bool of_bf16 = config.type == dtype::bf16;
    if (!forward) {
      const bool of_blocks = config.pattern == sparse_pattern::blocksparse && config.head_dim == 0;
      if (!of_blocks || !of_bf16 || !has_bf16_products(config.target)) {
        return &cpu_rows_of_a_type_are_forward;
      }
      return nullptr;
    }
    const bool of_floats = config.type == dtype::f32 || config.type == dtype::f16;
    if (!of_bf16 && (!of_floats || has_bf16_products(config.target))) {
      return &cpu_types_have_products;
    }
    if (!some_head_dim) return &head_dim_of_a_type_is_64_or_128;
    return nullptr;
  }
  if (config.target == backend::cuda_sm90 && (any || !forward)) {
    return &sm90_rows_are_forward_of_16_bits;
  }
  if (any) return nullptr;
  if (config.type != dtype::f16 && config.type != dtype::bf16) return &matrix_unit_takes_16_bits;
  if (!some_head_dim) return &head_dim_of_a_type_is_64_or_128;
  if (!forward && config.pattern != sparse_pattern::blocksparse) {
    return &matrix_unit_goes_backward_over_blocks;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(sparse_attention_config config) noexcept {
  using namespace sparse_attention_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target) && config.type == dtype::none) {
    return &bf16_instructions_add_nothing;
  }
  return nullptr;
}

}  // namespace tessera
