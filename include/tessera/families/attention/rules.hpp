// Which configs are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/shared_rules.hpp>

namespace tessera {

/// What legal rows meet.
namespace attention_rules {

using shared_rules::bf16_instructions_take_bf16;

inline constexpr row_rule type_is_floating{
    "type is f32, f16 or bf16, or f8_e4m3 where cpu_generic and cuda_sm90 rows have contiguous "
    "keys"};
inline constexpr row_rule head_dim_in_range{"head_dim and v_head_dim are 0 to 256"};
inline constexpr row_rule any_head_dim_goes_with_any_v_head_dim{
    "head_dim and v_head_dim are both 0 (any) or both fixed"};
inline constexpr row_rule block_q_is_whole_register_tiles{
    "block_q of a prefill row is a positive multiple of the register tile's rows"};
inline constexpr row_rule block_kv_is_whole_register_tiles{
    "block_kv is a positive multiple of the register tile's columns"};
inline constexpr row_rule tile_fits_in_cache{
    "block_q is at most 1024 and block_kv at most 1024, so that they stay in the cache"};
inline constexpr row_rule decode_rows_fit{
    "block_q of a decode row is 1 to 16, of cpu_amx_bf16 1 to 64"};
inline constexpr row_rule byte_products_add_nothing{
    "table rows are not of cpu_avx512_vnni, whose products of 8 bits attention has not"};
inline constexpr row_rule amx_decode_has_whole_tiles{
    "decode rows of cpu_amx_bf16 have fixed head dims that are multiples of 32"};
inline constexpr row_rule has_base_features{
    "rows have varlen, lengths, sinks and unnormalized, which cost them nothing"};
inline constexpr row_rule table_rows_take_every_mask{
    "table rows have mask window, which runs causal and full problems at no cost"};
inline constexpr row_rule decode_has_no_weights{"decode rows do not write weights"};
inline constexpr row_rule paged_keys_have_no_weights{"rows with paged keys do not write weights"};
inline constexpr row_rule cpu_has_no_tiling{"tiling of a CPU row is empty"};
inline constexpr row_rule cuda_warps_in_range{"a CUDA row has 1 to 16 warps"};
inline constexpr row_rule cuda_blocks_per_sm_in_range{
    "blocks_per_sm of a CUDA row is at least 1, and at most 64 warps are on a multiprocessor"};
inline constexpr row_rule cuda_block_q_is_whole_warp_tiles{
    "block_q of a CUDA row is a positive multiple of 16 rows for each warp"};
inline constexpr row_rule cuda_block_kv_is_whole_key_groups{
    "block_kv of a CUDA row is a positive multiple of 16"};
inline constexpr row_rule cuda_head_dims_are_whole_chunks{
    "fixed head dims of a CUDA row are multiples of 16 bytes, which tokens are copied by"};
inline constexpr row_rule cuda_tile_fits_in_shared_memory{
    "the tiles of a CUDA row take at most 166912 bytes of shared memory"};
inline constexpr row_rule sm90_takes_16_bit_prompts{
    "cuda_sm90 rows have type f16, bf16 or f8_e4m3, phase prefill and contiguous or paged keys"};
inline constexpr row_rule sm90_head_dims_are_tuned{
    "head_dim of a cuda_sm90 row is a multiple of 8 from 32 to 256, v_head_dim one whose next "
    "multiple of 16 is 48, 64, 80, 96, 112, 128, 192 or 256"};
inline constexpr row_rule sm90_warps_are_whole_warpgroups{
    "a cuda_sm90 row has block_q 128, 192 or 256, four warps for each 64 rows and four more, one "
    "block "
    "on a multiprocessor and Q in shared memory"};
inline constexpr row_rule sm90_four_warpgroups_are_plain{
    "a cuda_sm90 row with block_q 256 has type f16 or bf16, contiguous keys, varlen, lengths, "
    "sinks "
    "and unnormalized, and no other feature"};
inline constexpr row_rule sm90_head_dims_of_codes{
    "head_dim and v_head_dim of a cuda_sm90 row of type f8_e4m3 are 64, 128 or 256"};
inline constexpr row_rule sm90_block_kv_fits_in_registers{
    "block_kv of a cuda_sm90 row is 48, 64, 80, 96, 112 or 128, and its scores fit in the "
    "registers beside the sums"};
inline constexpr row_rule sm90_block_kv_of_codes{
    "block_kv of a cuda_sm90 row of type f8_e4m3 is 64, 96, 128, 160, 192 or 224, and its scores "
    "fit in the registers beside the sums"};
inline constexpr row_rule sm90_codes_are_plain{
    "a cuda_sm90 row of type f8_e4m3 has varlen, lengths, sinks and unnormalized, and no other "
    "feature"};
inline constexpr row_rule sm90_pages_are_plain{
    "a cuda_sm90 row with paged keys has type f16 or bf16, varlen, lengths, sinks and "
    "unnormalized, and no other feature but soft_cap"};
inline constexpr row_rule sm90_writes_no_weights{"cuda_sm90 rows do not write weights"};
inline constexpr row_rule sm90_masks_are_read_in_words{
    "block_kv of a cuda_sm90 row with mask is at most 64"};
inline constexpr row_rule sm90_tile_fits_in_shared_memory{
    "the tiles of a cuda_sm90 row take at most 232448 bytes of shared memory"};
inline constexpr row_rule coded_keys_are_read_in_lines{
    "rows with coded keys have backend cuda_sm80, type f16 or bf16 and head dims that are "
    "multiples of 32"};

}  // namespace attention_rules

/// Shared memory that one block can ask for on compute capability 8.0; no later data centre GPU has
/// less.
inline constexpr int most_shared_memory_bytes = 163 * 1024;
/// Warps that a multiprocessor of compute capability 8.0 or later holds.
inline constexpr int most_warps_per_sm = 64;

/// The rules of CPU rows alone; `config` is resolved.
template <class Answer = const row_rule*>
constexpr Answer broken_cpu_rule(const attention_config& config) noexcept {
  using namespace attention_rules;
  const bool decode = config.phase == attention_phase::decode;
  if (!decode && (config.block_q <= 0 || config.block_q % prefill_rows(config.target) != 0)) {
    return &block_q_is_whole_register_tiles;
  }
  if (decode && (config.block_q < 1 || config.block_q > most_decode_rows(config.target))) {
    return &decode_rows_fit;
  }
  if (config.block_kv <= 0 || config.block_kv % register_columns(config.target) != 0) {
    return &block_kv_is_whole_register_tiles;
  }
  if (config.block_q > 1024 || config.block_kv > 1024) {
    return &tile_fits_in_cache;
  }
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return &bf16_instructions_take_bf16;
  }
  const auto whole_tiles = [](int columns) { return columns > 0 && columns % 32 == 0; };
  if (has_tile_products(config.target) && decode &&
      !(whole_tiles(config.head_dim) && whole_tiles(config.v_head_dim))) {
    return &amx_decode_has_whole_tiles;
  }
  if (config.tiling != cuda_tiling{}) return &cpu_has_no_tiling;
  return nullptr;
}

/// Registers that sums, scores and weights of a consumer of a cuda_sm90 row have: what the launch
/// gives a block, shared out between a producer and two to four consumers, less what all else
/// takes.
constexpr int sm90_registers_for_tiles(int consumers) noexcept {
  return (consumers == 4 ? 112 : consumers == 3 ? 160 : 232) - 28;
}

/// The rules of cuda_sm90 rows alone; `config` is resolved.
template <class Answer = const row_rule*>
constexpr Answer broken_sm90_rule(const attention_config& config) noexcept {
  using namespace attention_rules;
  const auto is_one_of = [](int value, auto... allowed) { return ((value == allowed) || ...); };
  const bool codes = config.type == dtype::f8_e4m3;
  if ((size_of(config.type) != 2 && !codes) || config.phase != attention_phase::prefill ||
      config.keys == key_storage::coded) {
    return &sm90_takes_16_bit_prompts;
  }
  const int v_columns = sm90_columns(config.v_head_dim);
  if (config.head_dim < 32 || config.head_dim % 8 != 0 || config.v_head_dim % 8 != 0 ||
      !is_one_of(v_columns, 48, 64, 80, 96, 112, 128, 192, 256)) {
    return &sm90_head_dims_are_tuned;
  }
  if (codes &&
      (!is_one_of(config.head_dim, 64, 128, 256) || !is_one_of(config.v_head_dim, 64, 128, 256))) {
    return &sm90_head_dims_of_codes;
  }
  const int consumers = config.block_q / 64;
  if (!is_one_of(config.block_q, 128, 192, 256) ||
      config.tiling != cuda_tiling{.warps = 4 * consumers + 4, .blocks_per_sm = 1}) {
    return &sm90_warps_are_whole_warpgroups;
  }
  if (consumers == 4 &&
      (codes || are_paged(config.keys) || !config.features.without(base_features).empty())) {
    return &sm90_four_warpgroups_are_plain;
  }
  const int registers = sm90_registers_for_tiles(consumers) - v_columns / 2;
  if (codes && (!is_one_of(config.block_kv, 64, 96, 128, 160, 192, 224) ||
                config.block_kv / 8 * 5 > registers)) {
    return &sm90_block_kv_of_codes;
  }
  if (!codes && (!is_one_of(config.block_kv, 48, 64, 80, 96, 112, 128) ||
                 config.block_kv / 4 * 3 > registers)) {
    return &sm90_block_kv_fits_in_registers;
  }
  if (codes && config.features != base_features) return &sm90_codes_are_plain;
  const attention_features capped = base_features | attention_feature::soft_cap;
  if (are_paged(config.keys) && (codes || !capped.contains(config.features))) {
    return &sm90_pages_are_plain;
  }
  if (config.features.has(attention_feature::weights)) {
    return &sm90_writes_no_weights;
  }
  if (config.features.has(attention_feature::mask) && config.block_kv > 64) {
    return &sm90_masks_are_read_in_words;
  }
  if (shared_memory_bytes(config) > most_shared_memory_bytes_sm90) {
    return &sm90_tile_fits_in_shared_memory;
  }
  return nullptr;
}

/// The rules of CUDA rows alone; `config` is resolved.
template <class Answer = const row_rule*>
constexpr Answer broken_cuda_rule(const attention_config& config) noexcept {
  using namespace attention_rules;
  if (config.target == backend::cuda_sm90) return broken_sm90_rule<Answer>(config);
  const cuda_tiling& tiling = config.tiling;
  if (tiling.warps < 1 || tiling.warps > 16) return &cuda_warps_in_range;
  if (tiling.blocks_per_sm < 1 || tiling.blocks_per_sm > most_warps_per_sm / tiling.warps) {
    return &cuda_blocks_per_sm_in_range;
  }
  if (config.block_q <= 0 || config.block_q % (16 * tiling.warps) != 0) {
    return &cuda_block_q_is_whole_warp_tiles;
  }
  if (config.block_kv <= 0 || config.block_kv % 16 != 0) {
    return &cuda_block_kv_is_whole_key_groups;
  }
  const int chunk = 16 / static_cast<int>(size_of(config.type));
  if (config.head_dim % chunk != 0 || config.v_head_dim % chunk != 0) {
    return &cuda_head_dims_are_whole_chunks;
  }
  // Extents first: the product of larger ones would overflow.
  if (config.block_q > 1024 || config.block_kv > 1024 ||
      shared_memory_bytes(config) > most_shared_memory_bytes) {
    return &cuda_tile_fits_in_shared_memory;
  }
  return nullptr;
}

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(attention_config config) noexcept {
  using namespace attention_rules;
  config = resolved(config);
  const bool takes_codes =
      config.keys == key_storage::contiguous &&
      (config.target == backend::cpu_generic || config.target == backend::cuda_sm90);
  if (!is_floating_16_or_32(config.type) && !(takes_codes && config.type == dtype::f8_e4m3))
    return &type_is_floating;
  if (config.head_dim < 0 || config.head_dim > max_head_dim || config.v_head_dim < 0 ||
      config.v_head_dim > max_head_dim) {
    return &head_dim_in_range;
  }
  if ((config.head_dim == 0) != (config.v_head_dim == 0)) {
    return &any_head_dim_goes_with_any_v_head_dim;
  }
  const Answer broken =
      is_cpu(config.target) ? broken_cpu_rule<Answer>(config) : broken_cuda_rule<Answer>(config);
  if (broken) return broken;
  if (!config.features.contains(base_features)) return &has_base_features;
  if (config.phase == attention_phase::decode && config.features.has(attention_feature::weights)) {
    return &decode_has_no_weights;
  }
  if (are_paged(config.keys) && config.features.has(attention_feature::weights)) {
    return &paged_keys_have_no_weights;
  }
  if (config.keys == key_storage::coded &&
      (config.target != backend::cuda_sm80 || size_of(config.type) != 2 || config.head_dim == 0 ||
       config.head_dim % 32 != 0 || config.v_head_dim % 32 != 0)) {
    return &coded_keys_are_read_in_lines;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides: no two rows may differ only in what the
/// backend gets for nothing.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(attention_config config) noexcept {
  using namespace attention_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (config.target == backend::cpu_avx512_vnni) return &byte_products_add_nothing;
  if (config.mask != mask_mode::window) return &table_rows_take_every_mask;
  return nullptr;
}

}  // namespace tessera
