// Which configs of grouped matrix products are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace grouped_matmul_rules {

inline constexpr row_rule cuda_type_is_multiplied{
    "type of a CUDA row is f32, f16 or bf16, of cuda_sm90 also f8_e4m3, f8_e5m2 or i8"};
inline constexpr row_rule sm90_type_has_few_bits{
    "type of a row of cuda_sm90 is f16, bf16, f8_e4m3, f8_e5m2 or i8, which wgmma multiplies"};
inline constexpr row_rule cuda_tile_is_known{
    "tiles of a CUDA row are 64x64x64, 128x128x64 or 128x256x64, of f32 64x64x16 or 128x128x16, or "
    "with split sums 64x64x512; of cuda_sm90 128x128x64 or 128x256x64, of f8_e4m3 and i8 "
    "128x128x128 or 128x192x128, of f8_e5m2 128x192x128"};
inline constexpr row_rule cpu_rows_take_any_type{
    "type of a CPU row is none, of cpu_amx_bf16 bf16 or i8"};
inline constexpr row_rule block_m_is_whole_register_tiles{
    "block_m is a positive multiple of the rows of a register tile"};
inline constexpr row_rule block_n_is_whole_register_tiles{
    "block_n is a positive multiple of the columns of a register tile"};
inline constexpr row_rule block_k_is_whole_vectors{
    "block_k is a positive multiple of 32, so that operands are whole vectors of words"};
inline constexpr row_rule bytes_share_scales{
    "block_k of a CPU row that multiplies i8 is a multiple of 128, the elements that share a "
    "scale"};
inline constexpr row_rule tile_is_small{"block_m, block_n and block_k are at most 4096"};

}  // namespace grouped_matmul_rules

/// The tiles that CUDA kernels are written for.
constexpr bool is_cuda_tile(const grouped_matmul_config& config) noexcept {
  const bool floats = config.type == dtype::f32;
  if (splits_sums(config)) {
    return config.block_m == 64 && config.block_n == 64 && !floats &&
           config.target == backend::cuda_sm80;
  }
  if (config.block_k != depth_of_cuda_tile(config.type)) return false;
  if (config.block_m == 64) return config.block_n == 64 && config.target == backend::cuda_sm80;
  const int wide = is_8_bits(config.type) ? 192 : 256;
  const bool narrow = config.block_n == 128 && config.type != dtype::f8_e5m2;
  return config.block_m == 128 && (narrow || (config.block_n == wide && !floats));
}

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(grouped_matmul_config config) noexcept {
  using namespace grouped_matmul_rules;
  config = resolved(config);
  if (is_cuda(config.target)) {
    const bool panels = config.target == backend::cuda_sm90;
    if (!is_floating_16_or_32(config.type) && !(panels && is_8_bits(config.type))) {
      return &cuda_type_is_multiplied;
    }
    if (panels && config.type == dtype::f32) return &sm90_type_has_few_bits;
    if (!is_cuda_tile(config)) return &cuda_tile_is_known;
    return nullptr;
  }
  const bool tiles = has_tile_products(config.target);
  const bool multiplied = config.type == dtype::bf16 || config.type == dtype::i8;
  if (tiles ? !multiplied : config.type != dtype::none) return &cpu_rows_take_any_type;
  if (config.block_m <= 0 || config.block_m % rows_together(config) != 0) {
    return &block_m_is_whole_register_tiles;
  }
  if (config.block_n <= 0 || config.block_n % register_columns(config.target) != 0) {
    return &block_n_is_whole_register_tiles;
  }
  if (config.block_k <= 0 || config.block_k % 32 != 0) return &block_k_is_whole_vectors;
  if (multiplies_bytes(config) && config.block_k % scale_block != 0) return &bytes_share_scales;
  constexpr int most = 4096;
  if (config.block_m > most || config.block_n > most || config.block_k > most) {
    return &tile_is_small;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides: nothing.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(grouped_matmul_config config) noexcept {
  return broken_rule<Answer>(config);
}

}  // namespace tessera
