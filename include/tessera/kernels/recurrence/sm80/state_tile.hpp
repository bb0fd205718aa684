// A tile of a recurrent state [K,V] in the registers of a thread block, and the sums over its
// channels and columns. The lanes of a warp form groups: those of one group hold the channels of
// the same columns, so that a sum over channels is a few exchanges, and neighbouring groups hold
// neighbouring columns.
//
//   thread: channels (g * lanes + lane % lanes) * 4 + 0..3 for each g, columns
//           (warp * groups + lane / lanes) * columns_of_thread + 0..columns_of_thread - 1
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// How a tile lies in a block. `Keys` is the most channels that it takes; those behind a state's
/// own are 0. `Tokens`: whose rows are in shared memory at a time.
template <int Keys, int Lanes, int ColumnsOfThread, int Warps, int Tokens = 1024 / Keys>
struct tile_shape {
  static constexpr int keys = Keys;
  static constexpr int tokens = Tokens;
  static constexpr int lanes = Lanes;
  static constexpr int groups = 32 / Lanes;  ///< of a warp
  static constexpr int warps = Warps;
  static constexpr int threads = Warps * 32;
  static constexpr int channels_of_thread = Keys / Lanes;
  static constexpr int quads_of_thread = channels_of_thread / 4;
  static constexpr int columns_of_thread = ColumnsOfThread;
  static constexpr int columns = Warps * groups * ColumnsOfThread;
  static constexpr int floats_of_thread = channels_of_thread * ColumnsOfThread;
  static constexpr int floats = floats_of_thread * threads;
  static_assert(Keys % (4 * Lanes) == 0);
};

/// The shape of tiles with so many channels.
template <int Keys>
using tile_shape_of = std::conditional_t<
    Keys <= 128, tile_shape<Keys, 8, 4, 4>,
    std::conditional_t<Keys <= 256, tile_shape<Keys, 16, 4, 4>, tile_shape<Keys, 32, 2, 1>>>;

/// Where the calling thread's part of a tile lies.
template <class Shape>
struct thread_place {
  int channel = 0;  ///< of its first quad; the next are 4 * lanes further
  int column = 0;   ///< its first
  int group = 0;    ///< of its warp

  static __device__ __forceinline__ thread_place here() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    thread_place place;
    place.channel = lane % Shape::lanes * 4;
    place.group = lane / Shape::lanes;
    place.column = (warp * Shape::groups + place.group) * Shape::columns_of_thread;
    return place;
  }
  /// The channel of row c of the thread's part.
  __device__ __forceinline__ int channel_of(int c) const {
    return channel + c / 4 * 4 * Shape::lanes + c % 4;
  }
  /// One thread of those that hold the same columns.
  __device__ __forceinline__ bool leads() const { return channel == 0; }
};

/// Values of the thread's columns.
template <class Shape>
using column_values = float[Shape::columns_of_thread];

/// Columns of a tile in shared memory: one of the threads that hold them writes them.
template <class Shape>
__device__ __forceinline__ void put_columns(float* to, const thread_place<Shape>& mine,
                                            const column_values<Shape>& values) {
  if (!mine.leads()) return;
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) to[mine.column + j] = values[j];
}
template <class Shape>
__device__ __forceinline__ void take_columns(column_values<Shape>& to, const float* from,
                                             const thread_place<Shape>& mine) {
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) to[j] = from[mine.column + j];
}
/// The tile's columns of a row, of which there are `count` from the first of the tile on.
template <class Element, class Shape>
__device__ __forceinline__ void store_columns(Element* row, std::int64_t count,
                                              const thread_place<Shape>& mine,
                                              const column_values<Shape>& values) {
  if (!mine.leads()) return;
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) {
    if (mine.column + j < count) row[mine.column + j] = prim::nearest<Element>(values[j]);
  }
}

/// The columns' sums over all channels, in every thread that holds them.
template <class Shape>
__device__ __forceinline__ void add_over_channels(float (&sums)[Shape::columns_of_thread]) {
#pragma unroll
  for (int step = 1; step < Shape::lanes; step *= 2) {
#pragma unroll
    for (float& sum : sums) sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
  }
}

/// A sum of each channel of a quad over the columns of the warp: the thread is left with that of
/// channel group * 4 / groups of the quad, and, with fewer groups than 4, of those next to it, at
/// the front of `sums`.
template <class Shape>
__device__ __forceinline__ void add_over_columns(float (&sums)[4], int group) {
  if constexpr (Shape::groups == 4) {
    const bool upper = group >= 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float kept = upper ? sums[i + 2] : sums[i], sent = upper ? sums[i] : sums[i + 2];
      sums[i] = kept + __shfl_xor_sync(prim::cuda::all_lanes, sent, 2 * Shape::lanes);
    }
    const float kept = group % 2 != 0 ? sums[1] : sums[0];
    const float sent = group % 2 != 0 ? sums[0] : sums[1];
    sums[0] = kept + __shfl_xor_sync(prim::cuda::all_lanes, sent, Shape::lanes);
  } else if constexpr (Shape::groups == 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float kept = group != 0 ? sums[i + 2] : sums[i];
      const float sent = group != 0 ? sums[i] : sums[i + 2];
      sums[i] = kept + __shfl_xor_sync(prim::cuda::all_lanes, sent, Shape::lanes);
    }
  }
}
/// Sums that `add_over_columns` leaves to a thread.
template <class Shape>
inline constexpr int channels_left = 4 / Shape::groups;

/// The warp's sums over its columns of the thread's quad of channels go to a row in shared memory.
template <class Shape>
__device__ __forceinline__ void put_channels(float (&sums)[4], const thread_place<Shape>& mine,
                                             int quad, float* row) {
  add_over_columns<Shape>(sums, mine.group);
  float* const to =
      row + mine.channel + quad * 4 * Shape::lanes + mine.group * channels_left<Shape>;
#pragma unroll
  for (int i = 0; i < channels_left<Shape>; ++i) to[i] = sums[i];
}

/// Four floats of a row in shared memory.
__device__ __forceinline__ void load_quad(float (&to)[4], const float* from) {
  const float4 quad = *reinterpret_cast<const float4*>(from);
  to[0] = quad.x, to[1] = quad.y, to[2] = quad.z, to[3] = quad.w;
}

/// Part of a state in memory.
struct state_place {
  std::int64_t offset = 0;   ///< of the first channel and column of the tile, in elements
  std::int64_t channel = 0;  ///< stride
  int channels = 0, columns = 0;

  /// Where float i of a thread lies, if the state has it. Strides may be negative.
  template <class Shape>
  __device__ __forceinline__ bool find(const thread_place<Shape>& mine, int i,
                                       std::int64_t& found) const {
    const int its_channel = mine.channel_of(i / Shape::columns_of_thread);
    const int column = mine.column + i % Shape::columns_of_thread;
    found = offset + its_channel * channel + column;
    return its_channel < channels && column < columns;
  }
  /// Threads can take their columns as 16 bytes at a time: f32, all columns of a tile, addresses
  /// and gaps that are multiples of 16 bytes.
  template <class Shape>
  __device__ __forceinline__ bool is_wide(const void* data, dtype type) const {
    if constexpr (Shape::columns_of_thread != 4) return false;
    const auto gaps = static_cast<std::uintptr_t>(offset | channel) * sizeof(float);
    return type == dtype::f32 && columns >= Shape::columns &&
           (reinterpret_cast<std::uintptr_t>(data) | gaps) % sizeof(float4) == 0;
  }
};

/// Part of a state as a tile in memory of the launch, [floats_of_thread][threads]. Null: zeros.
template <class Shape>
__device__ void gather_tile(const void* data, dtype type, const state_place& place, float* tile) {
  const auto mine = thread_place<Shape>::here();
#pragma unroll 1
  for (int i = 0; i < Shape::floats_of_thread; ++i) {
    std::int64_t offset;
    const bool used = place.find(mine, i, offset) && data != nullptr;
    tile[i * Shape::threads + static_cast<int>(threadIdx.x)] =
        used ? prim::cuda::number_at(data, type, offset) : 0.0f;
  }
}
/// And back; zeros instead, if it is not wanted.
template <class Shape>
__device__ void scatter_tile(const float* tile, bool wanted, void* data, dtype type,
                             const state_place& place) {
  const auto mine = thread_place<Shape>::here();
#pragma unroll 1
  for (int i = 0; i < Shape::floats_of_thread; ++i) {
    std::int64_t offset;
    const float x = tile[i * Shape::threads + static_cast<int>(threadIdx.x)];
    if (place.find(mine, i, offset)) prim::cuda::put_number(data, type, offset, wanted ? x : 0.0f);
  }
}

/// The thread's part of a tile.
template <class Shape>
struct state_tile {
  float at[Shape::channels_of_thread][Shape::columns_of_thread];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& row : at) {
#pragma unroll
      for (float& x : row) x = 0.0f;
    }
  }

  /// Calls body(x, offset) for each element that the state has.
  template <class Body>
  __device__ __forceinline__ void for_each_in(const state_place& place, const Body& body) {
    const auto mine = thread_place<Shape>::here();
#pragma unroll
    for (int c = 0; c < Shape::channels_of_thread; ++c) {
      const int channel = mine.channel_of(c);
      if (channel >= place.channels) continue;
      const std::int64_t row = place.offset + channel * place.channel + mine.column;
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        if (mine.column + j < place.columns) body(at[c][j], row + j);
      }
    }
  }
  /// The same of rows of four columns, of a place that is wide.
  template <class Body>
  __device__ __forceinline__ void for_each_quad(const state_place& place, const Body& body) {
    if constexpr (Shape::columns_of_thread == 4) {
      const auto mine = thread_place<Shape>::here();
#pragma unroll
      for (int c = 0; c < Shape::channels_of_thread; ++c) {
        const int channel = mine.channel_of(c);
        if (channel >= place.channels) continue;
        float4 x{at[c][0], at[c][1], at[c][2], at[c][3]};
        body(x, place.offset + channel * place.channel + mine.column);
        at[c][0] = x.x, at[c][1] = x.y, at[c][2] = x.z, at[c][3] = x.w;
      }
    }
  }
  /// Null: zeros.
  __device__ void load(const void* data, dtype type, const state_place& place) {
    clear();
    if (data == nullptr) return;
    if (place.is_wide<Shape>(data, type)) {
      return for_each_quad(place, [&](float4& x, std::int64_t offset) {
        x = __ldcs(reinterpret_cast<const float4*>(static_cast<const float*>(data) + offset));
      });
    }
    prim::cuda::with_elements(data, type, [&](const auto* elements) {
      for_each_in(place, [&](float& x, std::int64_t offset) {
        x = prim::cuda::float_of(elements[offset]);
      });
    });
  }
  /// Null: nothing is stored.
  __device__ void store(void* data, dtype type, const state_place& place) {
    if (data == nullptr) return;
    if (place.is_wide<Shape>(data, type)) {
      return for_each_quad(place, [&](const float4& x, std::int64_t offset) {
        __stcs(reinterpret_cast<float4*>(static_cast<float*>(data) + offset), x);
      });
    }
    prim::cuda::with_elements(data, type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      for_each_in(place, [&](float& x, std::int64_t offset) {
        elements[offset] = prim::nearest<element>(x);
      });
    });
  }

  /// In memory of the launch, as `gather_tile` has it.
  __device__ __forceinline__ void load(const float* memory) {
#pragma unroll
    for (int i = 0; i < Shape::floats_of_thread; ++i) {
      at[i / Shape::columns_of_thread][i % Shape::columns_of_thread] =
          memory[i * Shape::threads + static_cast<int>(threadIdx.x)];
    }
  }
  __device__ __forceinline__ void store(float* memory) const {
#pragma unroll
    for (int i = 0; i < Shape::floats_of_thread; ++i) {
      memory[i * Shape::threads + static_cast<int>(threadIdx.x)] =
          at[i / Shape::columns_of_thread][i % Shape::columns_of_thread];
    }
  }
};

}  // namespace tessera::kernels::recurrence::sm80
