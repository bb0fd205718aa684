// Tiles in shared memory as the products of a warpgroup take them (prim/cuda/wgmma.hpp), and how
// its sums are stored.
#pragma once

#include <bit>
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
/// memory from `staging` on that nobody uses any more, so that each lane writes 16 bytes.
template <class Element, int Count>
__device__ __forceinline__ void store_sums(std::uint32_t staging, const float (&sums)[Count],
                                           void* data, const row_strides& strides,
                                           const prim::sequence& seq, std::int64_t begin,
                                           std::int64_t first, std::int64_t all, int head,
                                           float factor) {
  using staged = panel_tile<16, 2 * Count>;
  using words = prim::cuda::half_words<Element>;
  // Neighbouring lanes have the chunks of a row, and rows a power of two apart.
  constexpr unsigned columns = std::bit_ceil(static_cast<unsigned>(staged::chunks));
  constexpr unsigned rows_apart = 32 / columns;
  static_assert(columns <= 32);
  const unsigned lane = threadIdx.x % 32, chunk = lane % columns;
  const std::uint32_t own = staging + threadIdx.x / 32 * staged::bytes;
  const std::uint32_t matrix = own + staged::offset(lane % 16, lane / 16);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < Count / 8; ++n) {
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = words::pack(sums[8 * n + 2 * i] * factor, sums[8 * n + 2 * i + 1] * factor);
    }
    prim::cuda::store_matrices((matrix ^ static_cast<std::uint32_t>(n % 4 * 32)) +
                                   static_cast<std::uint32_t>(n / 4 * staged::panel_bytes),
                               packed);
  }
  __syncwarp();
  if (chunk >= staged::chunks) return;
  const unsigned row = lane / columns;
  auto* to = sm80::row_of<std::uint16_t>(data, strides, seq, begin + first + row, head) + chunk * 8;
  const std::int64_t apart = strides.row * rows_apart;
  const auto left = static_cast<int>(all - first < 16 ? all - first : 16) - static_cast<int>(row);
  const std::uint32_t from = own + staged::offset(row, chunk);
#pragma unroll
  for (unsigned i = 0; i < 16 / rows_apart; ++i) {
    if (static_cast<int>(i * rows_apart) >= left) break;
    prim::cuda::element_vector<std::uint32_t, 4> of_lane;
    prim::cuda::load_shared_16(
        of_lane.x, (from ^ (i * rows_apart % 8 * 16)) + i * (rows_apart * staged::row_bytes));
    sm80::store_chunk(to, of_lane);
    to += apart;
  }
}

}  // namespace tessera::kernels::attention_backward::sm90
