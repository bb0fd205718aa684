// The rows that were measured to be worth having (README.md of this folder has the figures), for
// 16-bit elements. Each name is a template over the element type.
#pragma once

#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/spec/flash_attention/config.hpp>

namespace tessera::flash::sm80 {

/// What costs these kernels nothing: every row has it.
inline constexpr flash_features free_features = base_features;

template <dtype Type>
struct d64_row {
  static constexpr flash_config config{
      .type = Type, .head_dim = 64, .features = free_features, .block_q = 128, .block_kv = 64};
  static constexpr tiling tiling{.warps = 4, .blocks_per_sm = 2, .q_in_registers = true};
};

template <dtype Type>
struct d96_row {
  static constexpr flash_config config{
      .type = Type, .head_dim = 96, .features = free_features, .block_q = 128, .block_kv = 64};
  static constexpr tiling tiling{.warps = 4, .blocks_per_sm = 2};
};

template <dtype Type>
struct d128_row {
  static constexpr flash_config config{
      .type = Type, .head_dim = 128, .features = free_features, .block_q = 128, .block_kv = 64};
  static constexpr tiling tiling{.warps = 4, .blocks_per_sm = 2};
};

/// 16 rows a warp: sums of 256 columns leave no registers for 32. Two blocks per multiprocessor:
/// one computes while the other starts or ends.
template <dtype Type>
struct d256_row {
  static constexpr flash_config config{
      .type = Type, .head_dim = 256, .features = free_features, .block_q = 64, .block_kv = 32};
  static constexpr tiling tiling{.warps = 4, .blocks_per_sm = 2, .q_in_registers = true};
};

template <dtype Type>
struct d192_v128_row {
  static constexpr flash_config config{.type = Type,
                                       .head_dim = 192,
                                       .v_head_dim = 128,
                                       .features = free_features,
                                       .block_q = 128,
                                       .block_kv = 64};
  static constexpr tiling tiling{.warps = 8, .blocks_per_sm = 1};
};

/// One warp a block: at most 16 rows (queries times heads of a group) that see many keys. Bound by
/// device memory; the blocks of a multiprocessor keep it busy together.
template <dtype Type>
struct d64_decode_row {
  static constexpr flash_config config{.type = Type,
                                       .head_dim = 64,
                                       .phase = flash_phase::decode,
                                       .features = free_features,
                                       .block_q = 16,
                                       .block_kv = 64};
  static constexpr tiling tiling{.warps = 1, .blocks_per_sm = 6};
};

template <dtype Type>
struct d128_decode_row {
  static constexpr flash_config config{.type = Type,
                                       .head_dim = 128,
                                       .phase = flash_phase::decode,
                                       .features = free_features,
                                       .block_q = 16,
                                       .block_kv = 64};
  static constexpr tiling tiling{.warps = 1, .blocks_per_sm = 3};
};

/// Every option, any head dimension up to 256, tokens at any address.
template <dtype Type>
struct any_row {
  static constexpr flash_config config{
      .type = Type, .features = every_feature, .block_q = 64, .block_kv = 32};
  static constexpr tiling tiling{.warps = 4, .blocks_per_sm = 2};
};

}  // namespace tessera::flash::sm80
