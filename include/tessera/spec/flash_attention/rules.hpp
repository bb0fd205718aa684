// Which configs are legal. Written once: the generator drops rows by `broken_rule`, an assertion in
// the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <string_view>

#include <tessera/spec/flash_attention/config.hpp>

namespace tessera {

enum class flash_rule : std::uint8_t {
  none,
  type_is_floating,
  head_dim_in_range,
  any_head_dim_goes_with_any_v_head_dim,
  block_q_is_whole_register_tiles,
  block_kv_is_whole_register_tiles,
  tile_fits_in_cache,
  decode_rows_fit,
  bf16_dot_takes_bf16,
  has_base_features,
  cpu_uses_window_mask,
  decode_uses_window_mask,
  decode_has_no_weights,
  cpu_has_no_tiling,
  cuda_warps_in_range,
  cuda_blocks_per_sm_in_range,
  cuda_block_q_is_whole_warp_tiles,
  cuda_block_kv_is_whole_key_groups,
  cuda_head_dims_are_whole_chunks,
  cuda_tile_fits_in_shared_memory,
};

/// Shared memory that one block can ask for on compute capability 8.0; no later data centre GPU has
/// less.
inline constexpr int most_shared_memory_bytes = 163 * 1024;
/// Warps that a multiprocessor of compute capability 8.0 or later holds.
inline constexpr int most_warps_per_sm = 64;

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(flash_rule rule) noexcept {
  switch (rule) {
    case flash_rule::none:
      return "the row is legal";
    case flash_rule::type_is_floating:
      return "type is f32, f16 or bf16";
    case flash_rule::head_dim_in_range:
      return "head_dim and v_head_dim are 0 to 256";
    case flash_rule::any_head_dim_goes_with_any_v_head_dim:
      return "head_dim and v_head_dim are both 0 (any) or both fixed";
    case flash_rule::block_q_is_whole_register_tiles:
      return "block_q of a prefill row is a positive multiple of the register tile's rows";
    case flash_rule::block_kv_is_whole_register_tiles:
      return "block_kv is a positive multiple of the register tile's columns";
    case flash_rule::tile_fits_in_cache:
      return "block_q is at most 1024 and block_kv at most 1024, so that they stay in the cache";
    case flash_rule::decode_rows_fit:
      return "block_q of a decode row is 1 to 16";
    case flash_rule::bf16_dot_takes_bf16:
      return "cpu_avx512_bf16 rows have type bf16";
    case flash_rule::has_base_features:
      return "rows have varlen, lengths, sinks and unnormalized, which cost them nothing";
    case flash_rule::cpu_uses_window_mask:
      return "table rows on the CPU have mask window, which costs them nothing over causal or full";
    case flash_rule::decode_uses_window_mask:
      return "decode rows of the table have mask window, whose place in the name says decode";
    case flash_rule::decode_has_no_weights:
      return "decode rows do not write weights";
    case flash_rule::cpu_has_no_tiling:
      return "tiling of a CPU row is empty";
    case flash_rule::cuda_warps_in_range:
      return "a CUDA row has 1 to 16 warps";
    case flash_rule::cuda_blocks_per_sm_in_range:
      return "blocks_per_sm of a CUDA row is at least 1, and at most 64 warps are on a "
             "multiprocessor";
    case flash_rule::cuda_block_q_is_whole_warp_tiles:
      return "block_q of a CUDA row is a positive multiple of 16 rows for each warp";
    case flash_rule::cuda_block_kv_is_whole_key_groups:
      return "block_kv of a CUDA row is a positive multiple of 16";
    case flash_rule::cuda_head_dims_are_whole_chunks:
      return "fixed head dims of a CUDA row are multiples of 16 bytes, which tokens are copied by";
    case flash_rule::cuda_tile_fits_in_shared_memory:
      return "the tiles of a CUDA row take at most 166912 bytes of shared memory";
  }
  return "invalid";
}

/// The rules of CPU rows alone; `config` is resolved.
constexpr flash_rule broken_cpu_rule(const flash_config& config) noexcept {
  const bool decode = config.phase == flash_phase::decode;
  if (!decode && (config.block_q <= 0 || config.block_q % register_rows(config.target) != 0)) {
    return flash_rule::block_q_is_whole_register_tiles;
  }
  if (decode && (config.block_q < 1 || config.block_q > max_decode_rows)) {
    return flash_rule::decode_rows_fit;
  }
  if (config.block_kv <= 0 || config.block_kv % register_columns(config.target) != 0) {
    return flash_rule::block_kv_is_whole_register_tiles;
  }
  if (config.block_q > 1024 || config.block_kv > 1024) {
    return flash_rule::tile_fits_in_cache;
  }
  if (config.target == backend::cpu_avx512_bf16 && config.type != dtype::bf16) {
    return flash_rule::bf16_dot_takes_bf16;
  }
  if (config.tiling != cuda_tiling{}) return flash_rule::cpu_has_no_tiling;
  return flash_rule::none;
}

/// The rules of CUDA rows alone; `config` is resolved.
constexpr flash_rule broken_cuda_rule(const flash_config& config) noexcept {
  const cuda_tiling& tiling = config.tiling;
  if (tiling.warps < 1 || tiling.warps > 16) return flash_rule::cuda_warps_in_range;
  if (tiling.blocks_per_sm < 1 || tiling.blocks_per_sm > most_warps_per_sm / tiling.warps) {
    return flash_rule::cuda_blocks_per_sm_in_range;
  }
  if (config.block_q <= 0 || config.block_q % (16 * tiling.warps) != 0) {
    return flash_rule::cuda_block_q_is_whole_warp_tiles;
  }
  if (config.block_kv <= 0 || config.block_kv % 16 != 0) {
    return flash_rule::cuda_block_kv_is_whole_key_groups;
  }
  const int chunk = 16 / static_cast<int>(size_of(config.type));
  if (config.head_dim % chunk != 0 || config.v_head_dim % chunk != 0) {
    return flash_rule::cuda_head_dims_are_whole_chunks;
  }
  // Extents first: the product of larger ones would overflow.
  if (config.block_q > 1024 || config.block_kv > 1024 ||
      shared_memory_bytes(config) > most_shared_memory_bytes) {
    return flash_rule::cuda_tile_fits_in_shared_memory;
  }
  return flash_rule::none;
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr flash_rule broken_rule(flash_config config) noexcept {
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return flash_rule::type_is_floating;
  if (config.head_dim < 0 || config.head_dim > max_head_dim || config.v_head_dim < 0 ||
      config.v_head_dim > max_head_dim) {
    return flash_rule::head_dim_in_range;
  }
  if ((config.head_dim == 0) != (config.v_head_dim == 0)) {
    return flash_rule::any_head_dim_goes_with_any_v_head_dim;
  }
  const flash_rule broken =
      is_cpu(config.target) ? broken_cpu_rule(config) : broken_cuda_rule(config);
  if (broken != flash_rule::none) return broken;
  if (!config.features.contains(base_features)) return flash_rule::has_base_features;
  if (config.phase == flash_phase::decode && config.features.has(flash_feature::weights)) {
    return flash_rule::decode_has_no_weights;
  }
  return flash_rule::none;
}

/// What a row of the generated table must meet besides: no two rows may differ only in what the
/// backend gets for nothing.
constexpr flash_rule broken_table_rule(flash_config config) noexcept {
  if (const flash_rule broken = broken_rule(config); broken != flash_rule::none) return broken;
  if (config.mask != mask_mode::window) {
    if (config.phase == flash_phase::decode) return flash_rule::decode_uses_window_mask;
    if (is_cpu(config.target)) return flash_rule::cpu_uses_window_mask;
  }
  return flash_rule::none;
}

namespace flash {

/// Instantiated for every row that is compiled. The compiler's message shows `Row` and `Broken`.
template <class Row, flash_rule Broken>
struct row_is_legal {
  static_assert(Broken == flash_rule::none,
                "this row breaks the rule named by the second template argument");
  static constexpr bool value = true;
};

}  // namespace flash
}  // namespace tessera
