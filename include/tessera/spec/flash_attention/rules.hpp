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
  cpu_has_base_features,
  cpu_uses_window_mask,
  decode_has_no_weights,
};

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
    case flash_rule::cpu_has_base_features:
      return "CPU rows have varlen, lengths, sinks and unnormalized, which cost them nothing";
    case flash_rule::cpu_uses_window_mask:
      return "table rows on the CPU have mask window, which costs them nothing over causal or full";
    case flash_rule::decode_has_no_weights:
      return "decode rows do not write weights";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr flash_rule broken_rule(flash_config config) noexcept {
  config = resolved(config);
  const bool decode = config.phase == flash_phase::decode;
  if (!is_floating_16_or_32(config.type)) return flash_rule::type_is_floating;
  if (config.head_dim < 0 || config.head_dim > max_head_dim || config.v_head_dim < 0 ||
      config.v_head_dim > max_head_dim) {
    return flash_rule::head_dim_in_range;
  }
  if ((config.head_dim == 0) != (config.v_head_dim == 0)) {
    return flash_rule::any_head_dim_goes_with_any_v_head_dim;
  }
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
  if (is_cpu(config.target) && !config.features.contains(base_features)) {
    return flash_rule::cpu_has_base_features;
  }
  if (decode && config.features.has(flash_feature::weights)) {
    return flash_rule::decode_has_no_weights;
  }
  return flash_rule::none;
}

/// What a row of the generated table must meet besides: no two rows may differ only in what the
/// backend gets for nothing.
constexpr flash_rule broken_table_rule(flash_config config) noexcept {
  if (const flash_rule broken = broken_rule(config); broken != flash_rule::none) return broken;
  if (is_cpu(config.target) && config.mask != mask_mode::window) {
    return flash_rule::cpu_uses_window_mask;
  }
  return flash_rule::none;
}

}  // namespace tessera
