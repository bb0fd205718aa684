// Shared memory of a block over latents in pages, and how its warpgroups tell each other of tiles.
//
// All tiles are panels (tensor_map.hpp): 64 rows of 64 columns each. A tile of keys is nine of
// them, the last its rope parts, with zeros where a call has fewer columns. Once scores are
// computed nobody reads the rope parts any more: the weights of the tile lie in their place.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::latent_attention::sm90 {

inline constexpr int block_rows = 64;  ///< query rows of a block
inline constexpr int tile_keys = 64;
inline constexpr int panel_bytes = tile_keys * prim::cuda::panel_row_bytes;
inline constexpr int latent_panels = widest_latent / prim::cuda::panel_columns;
inline constexpr int panels = latent_panels + widest_rope / prim::cuda::panel_columns;
static_assert(panels == latent_panels + 1 && block_rows == tile_keys);
inline constexpr int tile_bytes = panels * panel_bytes;
inline constexpr int stages = 2;
inline constexpr int value_warpgroups = 2;
/// Columns of weighted values of a warpgroup.
inline constexpr int value_columns = widest_latent / value_warpgroups;

/// Warpgroups of a block, in their order: one brings tiles, one computes scores and weights, the
/// others have a part of the columns of weighted values each.
enum class role : int { bring = 0, score = 1, weigh = 2 };
inline constexpr int absorbed_threads = (2 + value_warpgroups) * prim::cuda::warpgroup_size;
/// Registers of a thread: what a block is launched with, shared out anew.
inline constexpr int bring_registers = 64, score_registers = 112, weigh_registers = 168;
static_assert(bring_registers + score_registers + value_warpgroups * weigh_registers <= 512);

/// Tiles arrive in two parts: rope parts and the first columns, then the other columns.
inline constexpr int tile_parts = 2;

struct absorbed_memory {
  unsigned char queries[tile_bytes];
  unsigned char keys[stages][tile_bytes];
  float factors[stages][block_rows];  ///< what sums so far count beside a tile
  float scales[block_rows];           ///< what makes outputs of sums
  std::uint64_t arrived[stages][tile_parts];
  std::uint64_t weighed[stages];  ///< weights and factors of a tile are there
  std::uint64_t empty[stages];

  /// By one thread.
  __device__ __forceinline__ void init_barriers() {
    constexpr int bringing_warps = 4 / stages;
    for (int stage = 0; stage < stages; ++stage) {
      for (std::uint64_t& part : arrived[stage]) {
        prim::cuda::init_barrier(prim::cuda::shared_address(&part), bringing_warps);
      }
      prim::cuda::init_barrier(prim::cuda::shared_address(&weighed[stage]), 4);
      prim::cuda::init_barrier(prim::cuda::shared_address(&empty[stage]), 4 * value_warpgroups);
    }
  }
};
static_assert(sizeof(absorbed_memory) <= 227 * 1024);

/// Barriers of warps by number (mbarrier.hpp): those that score, those that weigh, both.
inline constexpr int score_barrier = 1, weigh_barrier = 2, end_barrier = 3;

/// Offset of 16-byte chunk `chunk` of a row of a tile, whose panels follow each other.
__device__ __forceinline__ std::uint32_t chunk_offset(std::uint32_t row, std::uint32_t chunk) {
  return chunk / 8 * panel_bytes + row * prim::cuda::panel_row_bytes + (chunk ^ row) % 8 * 16;
}

/// Phase of the barriers of the tile's stage.
__device__ __forceinline__ std::uint32_t phase_of(int tile) {
  return static_cast<std::uint32_t>(tile / stages % 2);
}

}  // namespace tessera::kernels::latent_attention::sm90
