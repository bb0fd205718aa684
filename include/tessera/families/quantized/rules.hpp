// Which configs of kernels of quantised weights are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/quantized/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace quantized_rules {

inline constexpr row_rule sm90_rows_multiply_16_bits{
    "a row of cuda_sm90 is a product, forward, of f16 or bf16, which wgmma multiplies"};
inline constexpr row_rule cuda_products_have_a_type{
    "type of a CUDA row of products is f32, f16 or bf16"};
inline constexpr row_rule other_rows_take_any_type{
    "type of a row that is no product on a GPU is none"};
inline constexpr row_rule bf16_rows_multiply_forward{
    "a table row of cpu_avx512_bf16 is a product, forward: elsewhere codes become f32"};
inline constexpr row_rule tiles_multiply_forward{"a row of cpu_amx_bf16 is a product, forward"};

}  // namespace quantized_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(quantized_config config) noexcept {
  using namespace quantized_rules;
  if (config.target == backend::cuda_sm90) {
    const bool multiplies = config.type == dtype::f16 || config.type == dtype::bf16;
    if (config.pass != quantized_pass::forward || !multiplies) return &sm90_rows_multiply_16_bits;
    return nullptr;
  }
  if (has_tile_products(config.target) && !multiplies_tiles(config)) return &tiles_multiply_forward;
  if (is_cuda(config.target) && is_product(config.pass)) {
    if (!is_floating_16_or_32(config.type)) return &cuda_products_have_a_type;
    return nullptr;
  }
  if (config.type != dtype::none) return &other_rows_take_any_type;
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(quantized_config config) noexcept {
  using namespace quantized_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  const bool adds_nothing = config.target == backend::cpu_avx512_bf16 && !multiplies_pairs(config);
  if (adds_nothing) return &bf16_rows_multiply_forward;
  return nullptr;
}

}  // namespace tessera
