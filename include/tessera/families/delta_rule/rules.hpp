// Which delta rule configs are legal. Written once: the generator drops rows by `broken_rule`, an
// assertion in the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>

namespace tessera {

enum class delta_rule_rule : std::uint8_t {
  none,
  sm90_rows_have_chunks,
  cuda_rows_cut_by_key_dim,
  chunks_are_products_of_bf16,
  cuda_key_dim_is_known,
  cpu_rows_take_any_key_dim,
  type_is_floating,
  forward_goes_token_by_token,
  chunk_in_range,
  columns_are_a_few_vectors,
  bf16_instructions_take_bf16,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(delta_rule_rule rule) noexcept {
  switch (rule) {
    case delta_rule_rule::none:
      return "the row is legal";
    case delta_rule_rule::sm90_rows_have_chunks:
      return "rows of cuda_sm90 are forward rows of chunk 64: others are those of cuda_sm80";
    case delta_rule_rule::cuda_rows_cut_by_key_dim:
      return "chunk of a CUDA row is 0 or 64, its columns are 0: they follow from key_dim";
    case delta_rule_rule::chunks_are_products_of_bf16:
      return "CUDA rows of chunks are for bf16 of key_dim 64 or 128";
    case delta_rule_rule::cuda_key_dim_is_known:
      return "key_dim of a CUDA row is 64, 128, 256 or 1024";
    case delta_rule_rule::cpu_rows_take_any_key_dim:
      return "key_dim of a CPU row is 0";
    case delta_rule_rule::type_is_floating:
      return "type is f32, f16 or bf16";
    case delta_rule_rule::forward_goes_token_by_token:
      return "chunk of a forward row is 1";
    case delta_rule_rule::chunk_in_range:
      return "chunk of a backward row is 2 to 256";
    case delta_rule_rule::columns_are_a_few_vectors:
      return "columns is 1 to 4 whole vectors of the backend";
    case delta_rule_rule::bf16_instructions_take_bf16:
      return "cpu_avx512_bf16 rows have type bf16";
    case delta_rule_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help f32 states";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr delta_rule_rule broken_rule(delta_rule_config config) noexcept {
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return delta_rule_rule::type_is_floating;
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 &&
        (config.chunk == 0 || config.pass != delta_rule_pass::forward)) {
      return delta_rule_rule::sm90_rows_have_chunks;
    }
    const bool known_chunk = config.chunk == 0 || config.chunk == tokens_of_chunk;
    if (!known_chunk || config.columns != 0) return delta_rule_rule::cuda_rows_cut_by_key_dim;
    const bool has_products = config.type == dtype::bf16 && config.key_dim <= most_chunk_keys;
    if (config.chunk != 0 && !has_products) return delta_rule_rule::chunks_are_products_of_bf16;
    const bool known = is_recurrent_key_dim(config.key_dim);
    return known ? delta_rule_rule::none : delta_rule_rule::cuda_key_dim_is_known;
  }
  if (config.key_dim != 0) return delta_rule_rule::cpu_rows_take_any_key_dim;
  if (config.pass == delta_rule_pass::forward) {
    if (config.chunk != 1) return delta_rule_rule::forward_goes_token_by_token;
  } else if (config.chunk < 2 || config.chunk > 256) {
    return delta_rule_rule::chunk_in_range;
  }
  const int width = vector_floats(config.target);
  if (config.columns < width || config.columns % width != 0 ||
      config.columns > most_delta_rule_registers * width) {
    return delta_rule_rule::columns_are_a_few_vectors;
  }
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return delta_rule_rule::bf16_instructions_take_bf16;
  }
  return delta_rule_rule::none;
}

/// What a row of the generated table must meet besides.
constexpr delta_rule_rule broken_table_rule(delta_rule_config config) noexcept {
  const delta_rule_rule broken = broken_rule(config);
  if (broken != delta_rule_rule::none) return broken;
  if (has_bf16_products(config.target)) {
    return delta_rule_rule::bf16_instructions_add_nothing;
  }
  return delta_rule_rule::none;
}

}  // namespace tessera
