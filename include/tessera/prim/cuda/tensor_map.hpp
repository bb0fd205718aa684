// Boxes of a tensor on their way from global to shared memory by the copy unit of sm_90 (PTX
// cp.async.bulk.tensor): the host describes the tensor in a map, one thread asks for a box, a
// barrier (mbarrier.hpp) tells that its bytes are there.
//
// Boxes are 64 elements of 16 bits wide and lie in shared memory as a panel: rows of 128 bytes
// whose 16-byte chunk c is at c ^ (row % 8), as wgmma.hpp and shared_tile.hpp have it. What lies
// outside the tensor arrives as zeros, and counts as bytes like the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

namespace tessera::prim::cuda {

/// Elements of a row of a panel, and its bytes.
inline constexpr int panel_columns = 64;
inline constexpr int panel_row_bytes = 128;

/// How long lines of a copy stay in the L2 cache (cache-hint words of cp.async.bulk).
enum class cache_hint : std::uint64_t {
  evict_normal = 0x1000000000000000u,
  evict_first = 0x12F0000000000000u,
  evict_last = 0x14F0000000000000u,
};

/// Asks for the box at `at` (column, then outwards). By one thread; `to` is a multiple of 1024.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& map,
                                         std::uint32_t barrier, const int (&at)[4],
                                         cache_hint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// The same of a box of several panels, which begins at column 0 (`boxed_tensor::box`): they arrive
/// one behind the other.
__device__ __forceinline__ void copy_panels(std::uint32_t to, const CUtensorMap& map,
                                            std::uint32_t barrier, const int (&at)[3],
                                            cache_hint hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %3, %6}], [%2], %7;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(0), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// The same as `copy_box` for the blocks of a cluster whose bits are set in `blocks`: the box
/// arrives at the same place in the shared memory of each, and counts at the same barrier of each.
__device__ __forceinline__ void copy_box_to_blocks(std::uint32_t to, const CUtensorMap& map,
                                                   std::uint32_t barrier, const int (&at)[4],
                                                   std::uint16_t blocks, cache_hint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "h"(blocks),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Asks for `bytes` bytes as they lie in memory, a multiple of 16, as both addresses are. By one
/// thread.
__device__ __forceinline__ void copy_bytes(std::uint32_t to, const void* from, std::uint32_t bytes,
                                           std::uint32_t barrier, cache_hint hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Has a map fetched that copies will want, in the memory of a kernel's parameters.
__device__ __forceinline__ void fetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// How rows of a box lie in shared memory. `panel`: see above, rows of 128 bytes. `half_panel`:
/// rows of 64 bytes whose 16-byte chunk c is at c ^ (row / 2 % 4). `plain`: one behind the other.
enum class box_order : std::uint8_t { panel, half_panel, plain };

/// A tensor of 16-bit elements with four axes, the first contiguous, and the boxes that are copied
/// of it. Strides in elements; that of an axis with one element does not count. Boxes of panels
/// that are wider than one, by whole panels, are for `copy_panels`.
struct boxed_tensor {
  const void* data = nullptr;
  std::array<std::int64_t, 4> extent{};
  std::array<std::int64_t, 4> stride{};
  std::array<int, 4> box{};
  box_order order = box_order::panel;
};

/// The driver's function, which the runtime library finds: nothing links the driver. Null if the
/// driver has none.
inline auto tensor_map_encoder() noexcept {
  using encoder = decltype(&cuTensorMapEncodeTiled);
  static const encoder found = []() -> encoder {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &result);
#else
    const cudaError_t code =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
    if (code != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
    return reinterpret_cast<encoder>(function);
  }();
  return found;
}

/// Makes the map of a tensor. False if the copy unit cannot address it: an address or stride that
/// is no multiple of 16 bytes, that is negative, or too far. A map is plain data: it is passed to
/// kernels by value, and copied with their arguments into graphs.
inline bool make_tensor_map(CUtensorMap& map, const boxed_tensor& tensor) noexcept {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr || reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) return false;
  std::array<cuuint64_t, 5> extents{};
  std::array<cuuint64_t, 4> strides{};
  std::array<cuuint32_t, 5> box{}, steps{1, 1, 1, 1, 1};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (tensor.extent[axis] < 1) return false;
    extents[axis] = static_cast<cuuint64_t>(tensor.extent[axis]);
    box[axis] = static_cast<cuuint32_t>(tensor.box[axis]);
    if (axis == 0) continue;
    // The stride of a single element is nobody's: any that the encoder takes.
    const std::int64_t bytes = tensor.extent[axis] > 1 ? 2 * tensor.stride[axis] : 16;
    if (bytes < 0 || bytes % 16 != 0 || bytes >= std::int64_t{1} << 40) return false;
    strides[axis - 1] = static_cast<cuuint64_t>(bytes);
  }
  // Several panels are an axis of their own, outside of tokens.
  const bool joined = tensor.box[0] > panel_columns;
  if (joined) {
    if (tensor.extent[0] % panel_columns != 0 || tensor.order != box_order::panel) return false;
    extents = {panel_columns, extents[1], extents[2], extents[0] / panel_columns, extents[3]};
    strides = {strides[0], strides[1], 2 * panel_columns, strides[2]};
    box = {panel_columns, box[1], box[2], box[0] / panel_columns, box[3]};
  }
  const CUtensorMapSwizzle swizzle = tensor.order == box_order::panel ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : tensor.order == box_order::half_panel
                                         ? CU_TENSOR_MAP_SWIZZLE_64B
                                         : CU_TENSOR_MAP_SWIZZLE_NONE;
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, joined ? 5 : 4,
                const_cast<void*>(tensor.data), extents.data(), strides.data(), box.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tessera::prim::cuda
