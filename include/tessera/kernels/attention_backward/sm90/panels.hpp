// Tiles in shared memory as the products of a warpgroup take them (prim/cuda/wgmma.hpp), and how
// its sums are stored.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm90 {

/// Panels of 64 columns, the last of which may be used in part; at a multiple of 1024 bytes.
template <int Rows, int Width>
struct panel_tile {
  static_assert(Rows % 8 == 0 && Width % 16 == 0);
  static constexpr int rows = Rows, width = Width;
  static constexpr int chunks = Width / 8;  ///< of 16 bytes, in a row
  static constexpr int panels = (Width + 63) / 64;
  static constexpr int row_bytes = 128;  ///< of a panel
  static constexpr int panel_bytes = Rows * row_bytes;
  static constexpr int bytes = panels * panel_bytes;

  static __device__ __forceinline__ std::uint32_t offset(std::uint32_t row, std::uint32_t chunk) {
    return chunk / 8 * panel_bytes + row * row_bytes + ((chunk % 8) ^ (row % 8)) * 16;
  }
};

/// From a multiple of 16 bytes to one of 1024 at most.
inline constexpr int alignment_bytes = 1024 - 16;

/// What this thread wrote to shared memory can be read by products, behind a barrier.
__device__ __forceinline__ void written_for_products() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Writes a warp's 16 rows of sums of a product times `factor`, those before `all`, through shared
/// memory from `staging` on that nobody uses any more.
template <class Element, int Count>
__device__ __forceinline__ void store_sums(std::uint32_t staging, const float (&sums)[Count],
                                           void* data, const row_strides& strides,
                                           const prim::sequence& seq, std::int64_t begin,
                                           std::int64_t first, std::int64_t all, int head,
                                           float factor) {
  sm80::accumulator tiles[Count / 4];
#pragma unroll
  for (int n = 0; n < Count / 4; ++n) {
    tiles[n] = {{sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]}};
  }
  const std::uint32_t own = staging + threadIdx.x / 32 * sm80::stored_rows<Count / 4>::bytes;
  sm80::store_rows<Element, Count / 4>(own, tiles, data, strides, seq, begin, first, all, head,
                                       factor);
}

}  // namespace tessera::kernels::attention_backward::sm90
