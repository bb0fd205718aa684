// Which configs are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/shared_rules.hpp>

namespace tessera {

/// What legal rows meet.
namespace attention_backward_rules {

using shared_rules::bf16_instructions_take_bf16;
using shared_rules::type_is_floating;

inline constexpr row_rule head_dim_in_range{"head_dim is 0 to 256"};
inline constexpr row_rule block_q_is_whole_tiles_and_vectors{
    "block_q is a positive multiple of the register tile's rows and of a vector's floats"};
inline constexpr row_rule block_kv_is_whole_register_tiles{
    "block_kv is a positive multiple of the register tile's columns"};
inline constexpr row_rule tile_fits_in_cache{
    "block_q and block_kv are at most 512, so that a tile stays in the cache"};
inline constexpr row_rule v_head_dim_is_that_of_q{
    "v_head_dim is head_dim, but of CUDA rows of head_dim 192 with d_q_atomics, where it is 128"};
inline constexpr row_rule cuda_head_dims_are_known{
    "head_dim of a CUDA row is 0 (any), 64, 96 or 128, with d_q_atomics also 192 or 256"};
inline constexpr row_rule only_cuda_rows_of_one_head_dim_add_up{
    "d_q_atomics belong to CUDA rows of one head_dim"};
inline constexpr row_rule cuda_type_of_head_dim_has_16_bits{
    "type of a CUDA row of one head_dim is f16 or bf16"};
inline constexpr row_rule cuda_blocks_are_fixed{
    "block_q x block_kv of a CUDA row is 128x128, 16x16 with any head_dim; with d_q_atomics 64x64, "
    "for head_dim 64 128x64; of cuda_sm90 for head_dim 64 128x128, for 96 and 128 64x128"};
inline constexpr row_rule sm90_rows_add_up{"a cuda_sm90 row has d_q_atomics"};
inline constexpr row_rule turns_are_those_of_sums{"in_turns belongs to rows with d_q_atomics"};

}  // namespace attention_backward_rules

/// The first rule that `config` breaks, or null. Holds for rows of an application too.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(attention_backward_config config) noexcept {
  using namespace attention_backward_rules;
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return &type_is_floating;
  if (config.head_dim < 0 || config.head_dim > max_head_dim) return &head_dim_in_range;
  const bool latent = is_cuda(config.target) && config.d_q_atomics && config.head_dim == 192;
  if (config.v_head_dim != (latent ? 128 : config.head_dim)) return &v_head_dim_is_that_of_q;
  if (config.d_q_atomics && (!is_cuda(config.target) || config.head_dim == 0)) {
    return &only_cuda_rows_of_one_head_dim_add_up;
  }
  if (config.in_turns && !config.d_q_atomics) return &turns_are_those_of_sums;
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 && !config.d_q_atomics) return &sm90_rows_add_up;
    const cuda_gradient_block block = cuda_block_of(config);
    if (config.block_q != block.queries || config.block_kv != block.keys) {
      return &cuda_blocks_are_fixed;
    }
    if (config.head_dim == 0) return nullptr;
    if (config.type == dtype::f32) return &cuda_type_of_head_dim_has_16_bits;
    const bool known = config.head_dim == 64 || config.head_dim == 96 || config.head_dim == 128;
    const bool added = config.d_q_atomics && (config.head_dim == 192 || config.head_dim == 256);
    if (!known && !added) return &cuda_head_dims_are_known;
    return nullptr;
  }
  if (config.block_q <= 0 || config.block_q % backward_rows_step(config.target) != 0) {
    return &block_q_is_whole_tiles_and_vectors;
  }
  if (config.block_kv <= 0 || config.block_kv % register_columns(config.target) != 0) {
    return &block_kv_is_whole_register_tiles;
  }
  if (config.block_q > 512 || config.block_kv > 512) return &tile_fits_in_cache;
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return &bf16_instructions_take_bf16;
  }
  return nullptr;
}

/// What a row of the generated table must meet: no more.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(const attention_backward_config& config) noexcept {
  return broken_rule<Answer>(config);
}

}  // namespace tessera
