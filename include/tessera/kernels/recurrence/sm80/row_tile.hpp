// A lone token's tile of a state: whole rows of 128 columns, so that a warp asks for 512 bytes side
// by side, where a warp of `state_tile` asks for 64 bytes of 8 rows. Sums over channels go through
// shared memory. A warp has the channels that a lane of `state_tile` has, and sums are added in its
// order: a sequence has the same bits whichever of the two kernels its batch goes to.
//
//   thread: channels (g * warps + warp) * 4 + 0..3 for each g, columns lane * 4 + 0..3
#pragma once

#include <cstdint>

#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// Rows of tokens are made as for tiles of this shape; two blocks a multiprocessor.
using row_shape = tile_shape<128, 8, 4, 8, 1>;
inline constexpr int row_blocks = 2;

/// Whether a sequence has a token, or of packed ones, whose lengths the host does not know, can
/// have no more.
template <class Args>
bool has_lone_tokens(const Args& args) {
  return args.cu_seqlens == nullptr ? args.tokens == 1 : args.tokens <= args.sequences;
}

/// Whether rows of states are read 16 bytes of f32 at a time. Null: yes.
template <class States>
bool has_whole_rows(const States& states, dtype type, std::int64_t channel) {
  if (states.data == nullptr) return true;
  const auto gaps = static_cast<std::uintptr_t>(states.sequence | states.head | channel);
  return type == dtype::f32 &&
         (reinterpret_cast<std::uintptr_t>(states.data) | gaps * sizeof(float)) % 16 == 0;
}

__device__ __forceinline__ float4 multiply_add(float a, const float4& x, const float4& y) {
  return make_float4(fmaf(a, x.x, y.x), fmaf(a, x.y, y.y), fmaf(a, x.z, y.z), fmaf(a, x.w, y.w));
}
__device__ __forceinline__ float4 multiply(float a, const float4& x) {
  return make_float4(a * x.x, a * x.y, a * x.z, a * x.w);
}

/// The thread's part.
struct row_tile {
  static constexpr int channels = row_shape::keys / row_shape::warps;
  static_assert(row_shape::warps == tile_shape_of<row_shape::keys>::lanes);
  float4 at[channels];

  static __device__ __forceinline__ int first_channel() {
    return static_cast<int>(threadIdx.x) / 32 * 4;
  }
  /// From the warp's first channel to its channel i.
  static constexpr int behind_first(int i) { return i / 4 * 4 * row_shape::warps + i % 4; }
  static __device__ __forceinline__ int first_column() {
    return static_cast<int>(threadIdx.x) % 32 * 4;
  }
  /// Null: zeros.
  __device__ __forceinline__ void load(const void* data, const state_place& place) {
#pragma unroll
    for (float4& x : at) x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (data == nullptr) return;
    const auto* const own = static_cast<const float*>(data) + own_offset(place);
#pragma unroll
    for (int i = 0; i < channels; ++i) {
      if (first_channel() + behind_first(i) >= place.channels) continue;
      at[i] = *reinterpret_cast<const float4*>(own + behind_first(i) * place.channel);
    }
  }
  /// Null: nothing is stored.
  __device__ __forceinline__ void store(void* data, const state_place& place) const {
    if (data == nullptr) return;
    auto* const own = static_cast<float*>(data) + own_offset(place);
#pragma unroll
    for (int i = 0; i < channels; ++i) {
      if (first_channel() + behind_first(i) >= place.channels) continue;
      *reinterpret_cast<float4*>(own + behind_first(i) * place.channel) = at[i];
    }
  }

 private:
  static __device__ __forceinline__ std::int64_t own_offset(const state_place& place) {
    return place.offset + first_channel() * place.channel + first_column();
  }
};

/// A row in shared memory: the channels of the thread's warp.
struct warp_channels {
  float at[row_tile::channels];
  __device__ __forceinline__ explicit warp_channels(const float* row) {
#pragma unroll
    for (int i = 0; i < row_tile::channels; i += 4) {
      const float4 quad = *reinterpret_cast<const float4*>(row + row_tile::first_channel() +
                                                           row_tile::behind_first(i));
      at[i] = quad.x, at[i + 1] = quad.y, at[i + 2] = quad.z, at[i + 3] = quad.w;
    }
  }
};

/// What warps have of sums over channels, in shared memory.
struct warp_sums {
  alignas(16) float at[row_shape::warps][row_shape::columns];

  /// The sum of all warps, in each of them; has a barrier in front of its end, and none behind.
  __device__ __forceinline__ float4 add(const float4& own) {
    const int warp = static_cast<int>(threadIdx.x) / 32, column = row_tile::first_column();
    *reinterpret_cast<float4*>(&at[warp][column]) = own;
    __syncthreads();
    return sum_of<row_shape::warps>(0, column);
  }

 private:
  /// Of `Count` warps, halves first.
  template <int Count>
  __device__ __forceinline__ float4 sum_of(int warp, int column) const {
    if constexpr (Count == 1) {
      return *reinterpret_cast<const float4*>(&at[warp][column]);
    } else {
      const float4 first = sum_of<Count / 2>(warp, column);
      return multiply_add(1.0f, sum_of<Count / 2>(warp + Count / 2, column), first);
    }
  }
};

/// Four columns of the row of an answer, by the first warp.
template <class Element>
__device__ __forceinline__ void store_answer(Element* row, const float4& answer) {
  if (threadIdx.x >= 32) return;
  const float x[4] = {answer.x, answer.y, answer.z, answer.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) row[row_tile::first_column() + j] = prim::nearest<Element>(x[j]);
}

}  // namespace tessera::kernels::recurrence::sm80
