// Which configs of linear attention with decay are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/shared_rules.hpp>

namespace tessera {

/// What legal rows meet.
namespace chunked_scan_rules {

using recurrent_key_rules::cpu_rows_take_any_key_dim;
using recurrent_key_rules::cuda_key_dim_is_known;
using shared_rules::bf16_instructions_take_bf16;
using shared_rules::type_is_floating;

inline constexpr row_rule sm90_rows_are_chunks_of_bf16{
    "rows of cuda_sm90 go by chunks of bf16: no others are written with wgmma"};
inline constexpr row_rule chunks_are_products_of_16_bits{
    "rows of chunks are CUDA rows for f16 or bf16"};
inline constexpr row_rule chunks_have_short_keys{"key_dim of a row of chunks is 64 or 128"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16, whose products do not help to step a "
    "state in "
    "f32"};

}  // namespace chunked_scan_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(chunked_scan_config config) noexcept {
  using namespace chunked_scan_rules;
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return &type_is_floating;
  if (goes_by_chunks(config)) {
    if (!is_cuda(config.target) || size_of(config.type) != 2) {
      return &chunks_are_products_of_16_bits;
    }
    if (config.key_dim > most_chunk_keys) return &chunks_have_short_keys;
  }
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 &&
        (!goes_by_chunks(config) || config.type != dtype::bf16)) {
      return &sm90_rows_are_chunks_of_bf16;
    }
    const bool known = is_recurrent_key_dim(config.key_dim);
    if (!known) return &cuda_key_dim_is_known;
    return nullptr;
  }
  if (config.key_dim != 0) return &cpu_rows_take_any_key_dim;
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return &bf16_instructions_take_bf16;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(chunked_scan_config config) noexcept {
  using namespace chunked_scan_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) {
    return &bf16_instructions_add_nothing;
  }
  return nullptr;
}

}  // namespace tessera
