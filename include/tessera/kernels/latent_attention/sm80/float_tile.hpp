// A product of 64x64 of a block of threads, in floats, whatever the operands hold: elements become
// floats on their way to shared memory, 32 of the summed axis at a time. A thread owns 4x4 sums.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::latent_attention::sm80 {

inline constexpr int tile_side = 64;   ///< rows, and columns, of a product
inline constexpr int tile_depth = 32;  ///< of the summed axis, at a time
inline constexpr int tile_threads = 256;
inline constexpr int tile_stride = tile_side + 4;  ///< of a row in shared memory

/// An operand's elements at one step of the summed axis lie side by side.
using float_tile = float[tile_depth][tile_stride];
/// A tile of scores as an operand whose summed axis is that of its rows, or, transposed, of its
/// columns.
using score_tile_memory = float[tile_side][tile_stride];

/// The offset of a row that is not there; others may be of either sign.
inline constexpr std::int64_t no_row = INT64_MIN;

/// Rows of elements that lie side by side, at offsets of their own. `no_row`: zeros are in its
/// place.
struct tile_rows {
  const void* data = nullptr;
  dtype type = dtype::none;
  const std::int64_t* at = nullptr;  ///< [tile_side], in shared memory
  std::int64_t columns = 0;
  /// Of rows of codes: factors of `scale_width` columns each, where rows have them; null: 1.
  const float* scales = nullptr;
  const std::int64_t* scales_at = nullptr;
  std::int64_t scale_width = 1;

  /// Of a column of row `r`, which is there.
  __device__ __forceinline__ float scale(int r, std::int64_t column) const {
    return scales == nullptr ? 1.0f : scales[scales_at[r] + column / scale_width];
  }
};

/// Calls body with the memory as elements of the type of rows, of 8 bits too if `Coded`.
template <bool Coded, class Body>
__device__ __forceinline__ void with_row_elements(const tile_rows& rows, const Body& body) {
  if constexpr (Coded) {
    if (rows.type == dtype::f8_e4m3) return body(static_cast<const f8_e4m3*>(rows.data));
    if (rows.type == dtype::f8_e5m2) return body(static_cast<const f8_e5m2*>(rows.data));
  }
  prim::cuda::with_elements(rows.data, rows.type, body);
}

/// The 4x4 sums of a thread: rows `row()` to + 3 of the tile, columns `column()` to + 3.
struct tile_sums {
  float at[4][4] = {};

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / 16 * 4; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % 16 * 4; }

  /// += a b for `depth` steps; a at least, and b, have so many rows.
  __device__ __forceinline__ void add(const float (*a)[tile_stride], const float (*b)[tile_stride],
                                      int depth) {
#pragma unroll 8
    for (int k = 0; k < depth; ++k) {
      const float4 of_a = *reinterpret_cast<const float4*>(&a[k][row()]);
      const float4 of_b = *reinterpret_cast<const float4*>(&b[k][column()]);
      const float x[4] = {of_a.x, of_a.y, of_a.z, of_a.w}, y[4] = {of_b.x, of_b.y, of_b.z, of_b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) at[i][j] = fmaf(x[i], y[j], at[i][j]);
      }
    }
  }

  /// The same where what is not finite in b meets a 0 of a: there it adds nothing.
  __device__ __forceinline__ void add_seen(const float (*a)[tile_stride],
                                           const float (*b)[tile_stride], int depth) {
    for (int k = 0; k < depth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = a[k][row() + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (x != 0.0f) at[i][j] = fmaf(x, b[k][column() + j], at[i][j]);
        }
      }
    }
  }
};

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & prim::cuda::single_exponent) != prim::cuda::single_exponent;
}

/// Loads 32 columns of 64 rows, from column `first` on, as an operand that is summed along them.
/// `Coded`: elements may have 8 bits, and scales.
template <bool Coded>
__device__ __forceinline__ void load_along(const tile_rows& rows, std::int64_t first,
                                           float_tile& to) {
  const int lane = static_cast<int>(threadIdx.x);
  with_row_elements<Coded>(rows, [&](const auto* elements) {
    const int k = lane % 8, r = lane / 8;
#pragma unroll
    for (int i = 0; i < tile_side; i += tile_threads / 8) {
      const std::int64_t at = rows.at[r + i];
#pragma unroll
      for (int c = 0; c < tile_depth; c += 8) {
        const bool held = at != no_row && first + k + c < rows.columns;
        float x = held ? prim::cuda::float_of(elements[at + first + k + c]) : 0.0f;
        if constexpr (Coded) {
          if (held) x *= rows.scale(r + i, first + k + c);
        }
        to[k + c][r + i] = x;
      }
    }
  });
}

/// Loads 64 columns, from `first` on, of 32 rows from `row` on, as an operand that is summed along
/// the rows. `finite`: what is not is 0. Returns whether some of this thread's elements are not.
template <bool Coded>
__device__ __forceinline__ bool load_across(const tile_rows& rows, int row, std::int64_t first,
                                            bool finite, float_tile& to) {
  const int lane = static_cast<int>(threadIdx.x);
  bool unusual = false;
  with_row_elements<Coded>(rows, [&](const auto* elements) {
    const int c = lane % tile_side, k = lane / tile_side;
#pragma unroll
    for (int i = 0; i < tile_depth; i += tile_threads / tile_side) {
      const std::int64_t at = rows.at[row + k + i];
      const bool held = at != no_row && first + c < rows.columns;
      float x = held ? prim::cuda::float_of(elements[at + first + c]) : 0.0f;
      if constexpr (Coded) {
        if (held) x *= rows.scale(row + k + i, first + c);
      }
      if (!is_finite(x)) {
        unusual = true;
        if (finite) x = 0.0f;
      }
      to[k + i][c] = x;
    }
  });
  return unusual;
}

/// sums += a b^T, along the columns of both. `CodedA`, `CodedB`: elements of a, of b, may have 8
/// bits.
template <bool CodedA = false, bool CodedB = CodedA>
__device__ __forceinline__ void multiply_along(const tile_rows& a, const tile_rows& b,
                                               float_tile& a_tile, float_tile& b_tile,
                                               tile_sums& sums) {
  for (std::int64_t k = 0; k < a.columns; k += tile_depth) {
    __syncthreads();
    load_along<CodedA>(a, k, a_tile);
    load_along<CodedB>(b, k, b_tile);
    __syncthreads();
    const std::int64_t left = a.columns - k;
    sums.add(a_tile, b_tile, left < tile_depth ? static_cast<int>(left) : tile_depth);
  }
}

/// sums += a times columns [first, first + 64) of `count` of the rows of b. `finite`: what is not
/// finite in b counts as 0; else it counts where a is not 0. `Coded`: elements of b may have 8
/// bits.
template <bool Coded = false>
__device__ __forceinline__ void multiply_across(const score_tile_memory& a, const tile_rows& b,
                                                int count, std::int64_t first, bool finite,
                                                float_tile& b_tile, tile_sums& sums) {
  for (int k = 0; k < count; k += tile_depth) {
    __syncthreads();
    const bool unusual = load_across<Coded>(b, k, first, finite, b_tile);
    const int depth = count - k < tile_depth ? count - k : tile_depth;
    if (__syncthreads_or(unusual && !finite) != 0) {
      sums.add_seen(a + k, b_tile, depth);
    } else {
      sums.add(a + k, b_tile, depth);
    }
  }
}

/// Adds 64 columns of this thread's rows to rows of floats in memory, which begin with `factor`
/// times what is there, or as 0 (`begin`). `at`: offsets of the thread's rows.
__device__ __forceinline__ void add_to_rows(float* to, const std::int64_t* at, std::int64_t columns,
                                            std::int64_t first, bool begin,
                                            const float (&factor)[4], const tile_sums& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = at[i];
    if (row == no_row) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t c = first + tile_sums::column() + j;
      if (c >= columns) continue;
      float& x = to[row + c];
      x = begin ? sums.at[i][j] : fmaf(x, factor[i], sums.at[i][j]);
    }
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
