// Latents in shared memory for the matrix unit: a row is up to 512 latent columns and up to 64 of a
// rope part behind them, with zeros where a call has fewer. Copies are 16 bytes each.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>

namespace tessera::kernels::latent_attention::sm80 {

inline constexpr int matrix_threads = 256;
inline constexpr int matrix_rows = 64;  ///< query rows of a block

/// What follows from the number of keys in a tile. Two tiles lie in shared memory, one of them on
/// its way.
template <class Element, int Keys>
struct matrix_shape {
  using element = Element;
  static constexpr int keys = Keys;
  // Of scores four warps compute one half of the summed axis, so many of them below each other, 32
  // columns each; then each has 16 columns of whole sums.
  static constexpr int row_warps = Keys == 64 ? 2 : 4;
  static constexpr int column_warps = matrix_threads / 32 / row_warps;
  static constexpr int warp_rows = matrix_rows / row_warps;
  static_assert(Keys == 32 * column_warps / 2 && warp_rows % 16 == 0);
  static constexpr int width = widest_latent + widest_rope;
  static constexpr int latent_chunks = widest_latent / 8, rope_chunks = widest_rope / 8;
  using query_tile = prim::cuda::shared_tile<matrix_rows, width>;
  using key_tile = prim::cuda::shared_tile<Keys, width>;
  using weight_tile = prim::cuda::shared_tile<matrix_rows, Keys>;

  static constexpr int keys_at = query_tile::bytes;
  static constexpr int weights_at = keys_at + 2 * key_tile::bytes;
  static constexpr int offsets_at = weights_at + weight_tile::bytes;
  static constexpr int statistics_at = offsets_at + Keys * 2 * 8;
  /// Of a tile by each column of warps, and of all tiles so far, before and after this one.
  static constexpr int shared_bytes = statistics_at + (4 + 2) * matrix_rows * 4;
};

/// Offsets of a row of latents and of its rope part; `no_row`: there is none, which is zeros.
struct row_offsets {
  std::int64_t latent = no_row;
  std::int64_t rope = no_row;
};

/// Starts copying rows to a tile in shared memory: each warp has rows of its own, eight apart.
/// `offsets(r)` are those of row r.
template <class Tile, class Offsets>
__device__ __forceinline__ void copy_rows(const latent_attention_kernel_args& args,
                                          const latent_rows& latents, const latent_rows& ropes,
                                          std::uint32_t to, const Offsets& offsets) {
  constexpr int warps = matrix_threads / 32;
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto latent_chunks = static_cast<std::uint32_t>(args.latent / 8);
  const auto rope_chunks = static_cast<std::uint32_t>(args.rope / 8);
  const auto* const latent = static_cast<const std::uint16_t*>(latents.data);
  const auto* const rope = static_cast<const std::uint16_t*>(ropes.data);
#pragma unroll
  for (int i = 0; i < Tile::rows / warps; ++i) {
    const std::uint32_t r = warp + static_cast<unsigned>(i) * warps;
    const std::int64_t from = offsets(r).latent;
#pragma unroll
    for (std::uint32_t chunk = lane; chunk < widest_latent / 8; chunk += 32) {
      const bool held = from != no_row && chunk < latent_chunks;
      prim::cuda::copy_async_16_or_zeros(to + Tile::offset(r, chunk),
                                         latent + (held ? from + chunk * 8 : 0), held);
    }
  }
  // Four rows of rope parts at a time.
#pragma unroll
  for (int i = 0; i < Tile::rows / warps / 4; ++i) {
    const std::uint32_t r = (static_cast<unsigned>(i) * warps + warp) * 4 + lane / 8,
                        chunk = lane % 8;
    const std::int64_t from = offsets(r).rope;
    const bool held = from != no_row && chunk < rope_chunks;
    prim::cuda::copy_async_16_or_zeros(to + Tile::offset(r, widest_latent / 8 + chunk),
                                       rope + (held ? from + chunk * 8 : 0), held);
  }
}

/// Zeros in the place of latents that are not finite, of a tile that arrived: as values they would
/// reach rows that do not see them. Rows that do have no numbers as weights already.
template <class Shape>
__device__ __forceinline__ void clear_nonfinite(std::uint32_t tile) {
  using key_tile = typename Shape::key_tile;
  for (std::uint32_t at = threadIdx.x; at < Shape::keys * Shape::latent_chunks;
       at += matrix_threads) {
    const std::uint32_t address =
        tile + key_tile::offset(at / Shape::latent_chunks, at % Shape::latent_chunks);
    std::uint32_t words[4];
    prim::cuda::load_shared_16(words, address);
    bool any = false;
#pragma unroll
    for (std::uint32_t& word : words) {
      any = any || prim::cuda::any_not_finite<typename Shape::element>(word);
      word = prim::cuda::finite_only<typename Shape::element>(word);
    }
    if (any) prim::cuda::store_shared_16(address, words);
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
