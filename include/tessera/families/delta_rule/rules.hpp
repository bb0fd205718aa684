// Which delta rule configs are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/shared_rules.hpp>

namespace tessera {

/// What legal rows meet.
namespace delta_rule_rules {

using recurrent_key_rules::cpu_rows_take_any_key_dim;
using recurrent_key_rules::cuda_key_dim_is_known;
using shared_rules::bf16_instructions_take_bf16;
using shared_rules::type_is_floating;

inline constexpr row_rule sm90_rows_have_chunks{
    "rows of cuda_sm90 are forward rows of chunk 64: others are those of cuda_sm80"};
inline constexpr row_rule cuda_rows_cut_by_key_dim{
    "chunk of a CUDA row is 0 or 64, its columns are 0: they follow from key_dim"};
inline constexpr row_rule chunks_are_products_of_bf16{
    "CUDA rows of chunks are for bf16 of key_dim 64 or 128"};
inline constexpr row_rule forward_goes_token_by_token{"chunk of a forward row is 1"};
inline constexpr row_rule chunk_in_range{"chunk of a backward row is 2 to 256"};
inline constexpr row_rule columns_are_a_few_vectors{
    "columns is 1 to 4 whole vectors of the backend"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16, whose products do not help f32 states"};

}  // namespace delta_rule_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(delta_rule_config config) noexcept {
  using namespace delta_rule_rules;
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return &type_is_floating;
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 &&
        (config.chunk == 0 || config.pass != delta_rule_pass::forward)) {
      return &sm90_rows_have_chunks;
    }
    const bool known_chunk = config.chunk == 0 || config.chunk == tokens_of_chunk;
    if (!known_chunk || config.columns != 0) return &cuda_rows_cut_by_key_dim;
    const bool has_products = config.type == dtype::bf16 && config.key_dim <= most_chunk_keys;
    if (config.chunk != 0 && !has_products) return &chunks_are_products_of_bf16;
    const bool known = is_recurrent_key_dim(config.key_dim);
    if (!known) return &cuda_key_dim_is_known;
    return nullptr;
  }
  if (config.key_dim != 0) return &cpu_rows_take_any_key_dim;
  if (config.pass == delta_rule_pass::forward) {
    if (config.chunk != 1) return &forward_goes_token_by_token;
  } else if (config.chunk < 2 || config.chunk > 256) {
    return &chunk_in_range;
  }
  const int width = vector_floats(config.target);
  if (config.columns < width || config.columns % width != 0 ||
      config.columns > most_delta_rule_registers * width) {
    return &columns_are_a_few_vectors;
  }
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return &bf16_instructions_take_bf16;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(delta_rule_config config) noexcept {
  using namespace delta_rule_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) {
    return &bf16_instructions_add_nothing;
  }
  return nullptr;
}

}  // namespace tessera
