// Tiles of 16 rows as floats in shared memory, whatever the type of their elements: query rows and
// keys, of which a thread has one pair. Half a warp has one line of pairs, so that what a line adds
// up or exchanges stays among 16 lanes.
#pragma once

#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

inline constexpr int tile = 16;  ///< rows of a tile
inline constexpr int threads = tile * tile;
inline constexpr int most_head_dim = 256;
/// Columns 16 apart of a row that a thread has.
inline constexpr int most_columns = most_head_dim / tile;

/// The thread's line of pairs, and its place in it.
__device__ __forceinline__ int line_of_thread() {
  return static_cast<int>(threadIdx.x) / tile;
}
__device__ __forceinline__ int place_of_thread() {
  return static_cast<int>(threadIdx.x) % tile;
}

__device__ __forceinline__ float sum_of_line(float x) {
#pragma unroll
  for (int step = tile / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(prim::cuda::all_lanes, x, step);
  }
  return x;
}
__device__ __forceinline__ float maximum_of_line(float x) {
#pragma unroll
  for (int step = tile / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(prim::cuda::all_lanes, x, step));
  }
  return x;
}
/// What the thread at a place of the same line has.
__device__ __forceinline__ float of_line(float x, int place) {
  return __shfl_sync(prim::cuda::all_lanes, x, place, tile);
}

/// 16 rows in shared memory, an odd number of words apart: elements of a column lie in different
/// banks.
struct float_tile {
  float* data = nullptr;
  int columns = 0;

  static constexpr __host__ __device__ int words(std::int64_t columns) {
    return tile * (static_cast<int>(columns) | 1);
  }
  __device__ float_tile(float* memory, std::int64_t width)
      : data(memory), columns(static_cast<int>(width)) {}
  __device__ float* end() const { return data + words(columns); }
  __device__ __forceinline__ const float* row(int r) const { return data + r * (columns | 1); }

  /// Row r becomes the elements from `offset_of(r)` on, times `factor_of(r)`; zeros if there is no
  /// such row.
  template <class Present, class OffsetOf, class FactorOf>
  __device__ void load(const sparse_rows& from, const Present& is_present,
                       const OffsetOf& offset_of, const FactorOf& factor_of) const {
    const int r = line_of_thread();
    float* const to = data + r * (columns | 1);
    if (!is_present(r)) {
      for (int d = place_of_thread(); d < columns; d += tile) to[d] = 0.0f;
      return;
    }
    const float factor = factor_of(r);
    prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
      const auto* const row = elements + offset_of(r);
#pragma unroll 4
      for (int d = place_of_thread(); d < columns; d += tile) {
        to[d] = prim::cuda::float_of(row[d]) * factor;
      }
    });
  }
  template <class Present, class OffsetOf>
  __device__ void load(const sparse_rows& from, const Present& is_present,
                       const OffsetOf& offset_of) const {
    load(from, is_present, offset_of, [](int) { return 1.0f; });
  }
  /// Rows [0, count), `stride` elements apart from `first` on.
  __device__ void load(const sparse_rows& from, int count, std::int64_t first,
                       std::int64_t stride) const {
    load(
        from, [count](int r) { return r < count; },
        [first, stride](int r) { return first + r * stride; });
  }
};

/// The product of a row of one tile and a row of another.
__device__ __forceinline__ float dot(const float* a, const float* b, int columns) {
  float sums[4] = {};
  int d = 0;
  for (; d + 4 <= columns; d += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(a[d + i], b[d + i], sums[i]);
  }
  for (; d < columns; ++d) sums[0] = fmaf(a[d], b[d], sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Sums of a line: columns place, place + 16, ... of what its pairs add up.
struct line_sums {
  float at[most_columns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& sum : at) sum = 0.0f;
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (float& sum : at) sum *= factor;
  }
  /// Adds the rows of a tile, each times the factor of the line's pair with it. Rows whose factor
  /// is 0 may hold anything.
  __device__ __forceinline__ void add(float factor, const float_tile& rows) {
    float factors[tile];
#pragma unroll
    for (int n = 0; n < tile; ++n) factors[n] = of_line(factor, n);
    const int place = place_of_thread();
#pragma unroll
    for (int i = 0; i < most_columns; ++i) {
      const int column = i * tile + place;
      if (column >= rows.columns) break;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < tile; ++n) {
        const float x = factors[n] == 0.0f ? 0.0f : rows.row(n)[column];
        sum = fmaf(factors[n], x, sum);
      }
      at[i] += sum;
    }
  }
  /// Stores columns of a row at `offset`, times `factor`.
  __device__ __forceinline__ void store(const sparse_rows& to, std::int64_t offset,
                                        std::int64_t columns, float factor) const {
    prim::cuda::with_elements(to.data, to.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
#pragma unroll
      for (int i = 0; i < most_columns; ++i) {
        const int column = i * tile + place_of_thread();
        if (column < columns) elements[offset + column] = prim::nearest<element>(at[i] * factor);
      }
    });
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
