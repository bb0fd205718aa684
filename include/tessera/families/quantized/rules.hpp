// Which configs of kernels of quantised weights are legal. Written once: the generator drops rows
// by `broken_rule`, an assertion in the launcher names the rule and the row, and the run time
// prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/config.hpp>

namespace tessera {

enum class quantized_rule : std::uint8_t {
  none,
  sm90_rows_multiply_16_bits,
  cuda_products_have_a_type,
  other_rows_take_any_type,
  bf16_rows_multiply_forward,
  tiles_multiply_forward,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(quantized_rule rule) noexcept {
  switch (rule) {
    case quantized_rule::none:
      return "the row is legal";
    case quantized_rule::sm90_rows_multiply_16_bits:
      return "a row of cuda_sm90 is a product, forward, of f16 or bf16, which wgmma multiplies";
    case quantized_rule::cuda_products_have_a_type:
      return "type of a CUDA row of products is f32, f16 or bf16";
    case quantized_rule::other_rows_take_any_type:
      return "type of a row that is no product on a GPU is none";
    case quantized_rule::bf16_rows_multiply_forward:
      return "a table row of cpu_avx512_bf16 is a product, forward: elsewhere codes become f32";
    case quantized_rule::tiles_multiply_forward:
      return "a row of cpu_amx_bf16 is a product, forward";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr quantized_rule broken_rule(quantized_config config) noexcept {
  using enum quantized_rule;
  if (config.target == backend::cuda_sm90) {
    const bool multiplies = config.type == dtype::f16 || config.type == dtype::bf16;
    return config.pass == quantized_pass::forward && multiplies ? none : sm90_rows_multiply_16_bits;
  }
  if (has_tile_products(config.target) && !multiplies_tiles(config)) return tiles_multiply_forward;
  if (is_cuda(config.target) && is_product(config.pass)) {
    return is_floating_16_or_32(config.type) ? none : cuda_products_have_a_type;
  }
  return config.type == dtype::none ? none : other_rows_take_any_type;
}

/// What a row of the generated table must meet besides.
constexpr quantized_rule broken_table_rule(quantized_config config) noexcept {
  const quantized_rule broken = broken_rule(config);
  if (broken != quantized_rule::none) return broken;
  const bool adds_nothing = config.target == backend::cpu_avx512_bf16 && !multiplies_pairs(config);
  return adds_nothing ? quantized_rule::bf16_rows_multiply_forward : quantized_rule::none;
}

}  // namespace tessera
