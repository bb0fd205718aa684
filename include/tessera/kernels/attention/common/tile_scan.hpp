// What tensors say of a tile of keys as a whole, on a GPU: whether a mask shows or hides something
// of it, which segments it has.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention {

/// What entries of a mask's rows show and hide.
struct mask_scan {
  bool some = false;
  bool hidden = false;

  __device__ __forceinline__ void add_bytes(const std::uint8_t* row, std::int64_t step, int keys) {
    for (int j = 0; j < keys; ++j) {
      const bool shown = row[j * step] != 0;
      some = some || shown;
      hidden = hidden || !shown;
    }
  }
  /// The next `Keys` entries, a multiple of 16 at an address of that kind, of `rows` rows, at most
  /// four: all are under way at the same time.
  template <int Keys>
  __device__ __forceinline__ void add_chunks(const std::uint8_t* row, std::int64_t step, int rows) {
    std::uint32_t any = 0;
    std::uint32_t all = 0x80808080u;  // the highest bit of each byte that is not 0
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
      const auto* from = reinterpret_cast<const uint4*>(row + min(r, rows - 1) * step);
#pragma unroll
      for (int c = 0; c < Keys / 16; ++c) {
        const uint4 words = from[c];
        any |= words.x | words.y | words.z | words.w;
        all &= not_zero(words.x) & not_zero(words.y) & not_zero(words.z) & not_zero(words.w);
      }
    }
    some = some || any != 0;
    hidden = hidden || all != 0x80808080u;
  }
  static constexpr int rows_at_once = 4;

 private:
  static __device__ __forceinline__ std::uint32_t not_zero(std::uint32_t word) {
    return ((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word;
  }
};

/// Segments of some tokens.
struct id_range {
  int least = INT32_MAX;  ///< padding, which is negative, left out
  int most = -1;
  bool padded = false;

  __device__ __forceinline__ void add(std::int32_t id) {
    least = id < 0 ? least : min(least, id);
    most = max(most, id);
    padded = padded || id < 0;
  }
  /// Lanes' ranges become that of the warp.
  __device__ __forceinline__ void gather() {
    least = prim::cuda::minimum_of_warp(least);
    most = prim::cuda::maximum_of_warp(most);
    padded = prim::cuda::any_of_warp(padded);
  }
  __device__ __forceinline__ bool meets(const id_range& other) const {
    return least <= other.most && other.least <= most;
  }
  __device__ __forceinline__ bool is_only(int id) const {
    return !padded && least == id && most == id;
  }
};

}  // namespace tessera::kernels::attention
