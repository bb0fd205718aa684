// Which configs are legal. Written once: the generator drops rows by `broken_rule`, an assertion in
// the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/attention_backward/config.hpp>

namespace tessera {

enum class attention_backward_rule : std::uint8_t {
  none,
  type_is_floating,
  head_dim_in_range,
  block_q_is_whole_tiles_and_vectors,
  block_kv_is_whole_register_tiles,
  tile_fits_in_cache,
  bf16_dot_takes_bf16,
  v_head_dim_is_that_of_q,
  cuda_head_dims_are_known,
  only_cuda_rows_of_one_head_dim_add_up,
  cuda_type_of_head_dim_has_16_bits,
  cuda_blocks_are_fixed,
  sm90_rows_add_up,
  turns_are_those_of_sums,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(attention_backward_rule rule) noexcept {
  switch (rule) {
    case attention_backward_rule::none:
      return "the row is legal";
    case attention_backward_rule::type_is_floating:
      return "type is f32, f16 or bf16";
    case attention_backward_rule::head_dim_in_range:
      return "head_dim is 0 to 256";
    case attention_backward_rule::block_q_is_whole_tiles_and_vectors:
      return "block_q is a positive multiple of the register tile's rows and of a vector's floats";
    case attention_backward_rule::block_kv_is_whole_register_tiles:
      return "block_kv is a positive multiple of the register tile's columns";
    case attention_backward_rule::tile_fits_in_cache:
      return "block_q and block_kv are at most 512, so that a tile stays in the cache";
    case attention_backward_rule::bf16_dot_takes_bf16:
      return "cpu_avx512_bf16 and cpu_amx_bf16 rows have type bf16";
    case attention_backward_rule::v_head_dim_is_that_of_q:
      return "v_head_dim is head_dim, but of CUDA rows of head_dim 192 with d_q_atomics, where it "
             "is 128";
    case attention_backward_rule::cuda_head_dims_are_known:
      return "head_dim of a CUDA row is 0 (any), 64, 96 or 128, with d_q_atomics also 192 or 256";
    case attention_backward_rule::only_cuda_rows_of_one_head_dim_add_up:
      return "d_q_atomics belong to CUDA rows of one head_dim";
    case attention_backward_rule::cuda_type_of_head_dim_has_16_bits:
      return "type of a CUDA row of one head_dim is f16 or bf16";
    case attention_backward_rule::cuda_blocks_are_fixed:
      return "block_q x block_kv of a CUDA row is 128x128, 16x16 with any head_dim; with "
             "d_q_atomics 64x64, for head_dim 64 128x64; of cuda_sm90 for head_dim 64 128x128, for "
             "96 "
             "and 128 64x128";
    case attention_backward_rule::sm90_rows_add_up:
      return "a cuda_sm90 row has d_q_atomics";
    case attention_backward_rule::turns_are_those_of_sums:
      return "in_turns belongs to rows with d_q_atomics";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for rows of an application too.
constexpr attention_backward_rule broken_rule(attention_backward_config config) noexcept {
  using enum attention_backward_rule;
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return type_is_floating;
  if (config.head_dim < 0 || config.head_dim > max_head_dim) return head_dim_in_range;
  const bool latent = is_cuda(config.target) && config.d_q_atomics && config.head_dim == 192;
  if (config.v_head_dim != (latent ? 128 : config.head_dim)) return v_head_dim_is_that_of_q;
  if (config.d_q_atomics && (!is_cuda(config.target) || config.head_dim == 0)) {
    return only_cuda_rows_of_one_head_dim_add_up;
  }
  if (config.in_turns && !config.d_q_atomics) return turns_are_those_of_sums;
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 && !config.d_q_atomics) return sm90_rows_add_up;
    const cuda_gradient_block block = cuda_block_of(config);
    if (config.block_q != block.queries || config.block_kv != block.keys) {
      return cuda_blocks_are_fixed;
    }
    if (config.head_dim == 0) return none;
    if (config.type == dtype::f32) return cuda_type_of_head_dim_has_16_bits;
    const bool known = config.head_dim == 64 || config.head_dim == 96 || config.head_dim == 128;
    const bool added = config.d_q_atomics && (config.head_dim == 192 || config.head_dim == 256);
    return known || added ? none : cuda_head_dims_are_known;
  }
  if (config.block_q <= 0 || config.block_q % backward_rows_step(config.target) != 0) {
    return block_q_is_whole_tiles_and_vectors;
  }
  if (config.block_kv <= 0 || config.block_kv % register_columns(config.target) != 0) {
    return block_kv_is_whole_register_tiles;
  }
  if (config.block_q > 512 || config.block_kv > 512) return tile_fits_in_cache;
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return bf16_dot_takes_bf16;
  }
  return none;
}

/// What a row of the generated table must meet: no more.
constexpr attention_backward_rule broken_table_rule(
    const attention_backward_config& config) noexcept {
  return broken_rule(config);
}

}  // namespace tessera
