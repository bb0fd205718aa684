// Columns of a recurrent state [K,V] in the accumulators of a warp, as S^T: what the matrix unit
// adds to. Packed to 16 bits, they are the operand B [channels, values] of a product that reads the
// state, and the operand A of its transpose: a state never goes through shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// Numbers that are no inputs, sums of products, go beyond the range of the type: operands made of
/// them are relative to the largest of their row.
template <class Element>
inline constexpr bool range_is_short = std::is_same_v<Element, f16>;

/// A power of 2 and its inverse.
struct range_scale {
  float factor = 1.0f, inverse = 1.0f;

  /// The factor that brings a largest magnitude to 2^12, or one below 2^-30 as near to it.
  static __device__ __forceinline__ range_scale of(float largest) {
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), 127 - 30);
    const int of_largest = min(exponent, 254);
    return {__int_as_float((2 * 127 + 12 - of_largest) << 23),
            __int_as_float((of_largest - 12) << 23)};
  }
};

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(prim::cuda::all_lanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(prim::cuda::all_lanes, x, 2));
}

/// Where a warp's columns lie in the f32 states of a sequence and head.
struct state_columns {
  std::int64_t channel = 0;  ///< stride, in elements
  int channels = 0;          ///< of the state; those behind them are 0
  int columns = 0;           ///< that the warp has; may be none
  std::int64_t column = 1;   ///< stride
};

/// Lane l = 4 g + t has, of tile i and channels 8 n on, columns 16 i + g and, in the upper two
/// numbers, 16 i + g + 8, each of channels 8 n + 2t and 8 n + 2t + 1.
template <int Keys, int Tiles>
struct warp_state {
  prim::cuda::accumulator at[Tiles][Keys / 8];

  /// Calls body(x, offset) for each element that the state has.
  template <class Body>
  __device__ __forceinline__ void for_each(const state_columns& place, const Body& body) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < Keys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4 * Tiles; ++i) {
        const int channel = n * 8 + lane % 4 * 2 + i % 2;
        const int column = i / 4 * 16 + i / 2 % 2 * 8 + lane / 4;
        if (channel < place.channels && column < place.columns) {
          body(at[i / 4][n].at[i % 4], channel * place.channel + column * place.column);
        }
      }
    }
  }
  /// Null: zeros.
  __device__ __forceinline__ void load(const void* from, dtype type, std::int64_t first,
                                       const state_columns& place) {
#pragma unroll
    for (int i = 0; i < Tiles * (Keys / 8) * 4; ++i) {
      at[i / (Keys / 2)][i / 4 % (Keys / 8)].at[i % 4] = 0.0f;
    }
    if (from == nullptr) return;
    prim::cuda::with_elements(from, type, [&](const auto* elements) {
      for_each(place, [&](float& x, std::int64_t offset) {
        x = prim::cuda::float_of(elements[first + offset]);
      });
    });
  }
  /// Null: nothing is stored.
  __device__ __forceinline__ void store(void* to, dtype type, std::int64_t first,
                                        const state_columns& place) {
    if (to == nullptr) return;
    prim::cuda::with_elements(to, type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      for_each(place, [&](const float& x, std::int64_t offset) {
        elements[first + offset] = prim::nearest<element>(x);
      });
    });
  }

  __device__ __forceinline__ void multiply(float factor) {
#pragma unroll
    for (auto& tile : at) {
#pragma unroll
      for (auto& part : tile) {
#pragma unroll
        for (float& x : part.at) x *= factor;
      }
    }
  }
  /// By a factor of each channel, in shared memory.
  __device__ __forceinline__ void multiply_channels(const float* factors) {
    const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < Keys / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + first);
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        at[i][n].at[0] *= factor.x;
        at[i][n].at[1] *= factor.y;
        at[i][n].at[2] *= factor.x;
        at[i][n].at[3] *= factor.y;
      }
    }
  }

  /// Each column by its factor, in shared memory, of the columns that the warp has.
  __device__ __forceinline__ void multiply_columns(const float* factors) {
    const int own = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      const float first = factors[i * 16 + own], second = factors[i * 16 + own + 8];
#pragma unroll
      for (auto& part : at[i]) {
        part.at[0] *= first;
        part.at[1] *= first;
        part.at[2] *= second;
        part.at[3] *= second;
      }
    }
  }

  /// The largest finite magnitude of the warp's numbers.
  __device__ __forceinline__ float largest() const {
    const float most = largest_below<false>();
    return isinf(most) ? largest_below<true>() : most;
  }

  /// Channels 16 k on of the columns of a tile, as operand B; of f16 times `factor`.
  template <class Element>
  __device__ __forceinline__ prim::cuda::fragment_b2 operand(int tile, int k,
                                                             float factor = 1.0f) const {
    using words = prim::cuda::half_words<Element>;
    const auto& low = at[tile][2 * k].at;
    const auto& high = at[tile][2 * k + 1].at;
    const auto pack = [factor](float first, float second) {
      if constexpr (range_is_short<Element>) return words::pack(factor * first, factor * second);
      return words::pack(first, second);
    };
    return {{pack(low[0], low[1]), pack(high[0], high[1]), pack(low[2], low[3]),
             pack(high[2], high[3])}};
  }

  /// += values^T keys, of 16 tokens: `values` are those of the tile's columns as operand A; the
  /// rows of keys lie at `keys`, of step 0, in a tile of Keys columns.
  template <class Element, class Rows>
  __device__ __forceinline__ void add_tokens(const prim::cuda::fragment_a (&values)[Tiles],
                                             std::uint32_t keys, int step) {
    using words = prim::cuda::half_words<Element>;
    constexpr int together = 4 / Tiles;  // loads under way
#pragma unroll
    for (int first = 0; first < Keys / 16; first += together) {
      prim::cuda::fragment_b2 operands[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        prim::cuda::load_matrices_transposed(operands[i].reg, Rows::step(keys, step, first + i));
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int pair = first + i;
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          words::template multiply_add<0>(at[tile][2 * pair], values[tile], operands[i]);
          words::template multiply_add<1>(at[tile][2 * pair + 1], values[tile], operands[i]);
        }
      }
    }
  }

 private:
  template <bool Finite>
  __device__ __forceinline__ float largest_below() const {
    float most = 0.0f;
#pragma unroll
    for (const auto& tile : at) {
#pragma unroll
      for (const auto& part : tile) {
#pragma unroll
        for (const float x : part.at) most = fmaxf(most, Finite && isinf(x) ? 0.0f : fabsf(x));
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(prim::cuda::all_lanes, most, step));
    }
    return most;
  }
};

/// Sixteen tokens of sixteen columns, an operand B [tokens, columns], as operand A [columns,
/// tokens].
__device__ __forceinline__ prim::cuda::fragment_a transposed(const prim::cuda::fragment_b2& of) {
  return {{of.reg[0], of.reg[2], of.reg[1], of.reg[3]}};
}

}  // namespace tessera::kernels::recurrence::sm80
