// Means from tokens: pieces of segments are summed, and those of long segments added up afterwards.
#pragma once

#include <cstdint>

#include <tessera/kernels/mean_pooling/sm80/access.hpp>
#include <tessera/kernels/mean_pooling/sm80/segments.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

/// sums += `count` tokens from row `first` on, `step` rows apart; `streams` of them are in flight.
/// A token of weight 0 is not read.
template <class Kernel, int Vector, class Weights, class Element>
__device__ __forceinline__ void sum_tokens(const Element* row_0, std::int64_t stride,
                                           const Weights& weights, std::int64_t first, int step,
                                           std::int64_t count, float (&sums)[Vector]) {
  constexpr int streams = resolved(Kernel::config).streams;
  const Element* token = row_0 + first * stride;
  const std::int64_t hop = step * stride;
  for (; count > 0; count -= streams, first += streams * step) {
    std::uint32_t bits[streams];
    float weight[streams];
    elements<Element, Vector> x[streams];
#pragma unroll
    for (int i = 0; i < streams; ++i) bits[i] = i < count ? weights.bits_of(first + i * step) : 0;
#pragma unroll
    for (int i = 0; i < streams; ++i, token += hop) {
      weight[i] = weights.value_of(bits[i]);
      x[i] = load_once_if<Vector>(weight[i] != 0.0f, token);
    }
#pragma unroll
    for (int v = 0; v < Vector; ++v) {
      float term[streams];
#pragma unroll
      for (int i = 0; i < streams; ++i) {
        term[i] = prim::cuda::float_of(x[i].x[v]);
        if constexpr (Weights::masked) term[i] *= weight[i];
      }
#pragma unroll
      for (int half = streams / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half; ++i) term[i] += term[i + half];
      }
      sums[v] += term[0];
    }
  }
}

/// Adds up the sums of all groups of lanes; group 0 gets them. Every thread of the block takes
/// part.
template <int Vector>
__device__ __forceinline__ void add_groups(float (&sums)[Vector], const thread_place& place,
                                           const pooling_schedule_sm80& cut) {
  __shared__ float exchanged[Vector * pooling_threads_sm80];
  for (int groups = cut.groups, kept; groups > 1; groups = kept) {
    kept = (groups + 1) / 2;
    float* const own = exchanged + threadIdx.x;
    __syncthreads();
    if (place.group >= kept && place.group < groups) {
#pragma unroll
      for (int v = 0; v < Vector; ++v) own[v * pooling_threads_sm80] = sums[v];
    }
    __syncthreads();
    if (place.group < groups - kept) {
#pragma unroll
      for (int v = 0; v < Vector; ++v) sums[v] += own[v * pooling_threads_sm80 + kept * cut.lanes];
    }
  }
}

/// What the sum of a segment is divided by.
__device__ __forceinline__ float divisor_of(const launch_args& args, const segment& one) {
  return args.totals != nullptr ? static_cast<float>(args.totals[one.entry])
                                : static_cast<float>(one.length());
}

/// A divisor of 0 stands for no token, or only masked ones: the mean is 0.
__device__ __forceinline__ float mean_of(float sum, float divisor) {
  return divisor == 0.0f ? 0.0f : sum / divisor;
}

template <class Element, int Vector>
__device__ __forceinline__ void store_means(const launch_args& args, const thread_place& place,
                                            const segment& one, const float (&sums)[Vector]) {
  if (!one.has_mean(args.call)) return;
  const float divisor = divisor_of(args, one);
  elements<Element, Vector> means;
#pragma unroll
  for (int v = 0; v < Vector; ++v)
    means.x[v] = prim::cuda::nearest<Element>(mean_of(sums[v], divisor));
  store<pooling_stores::cached>(
      static_cast<Element*>(args.call.to) + place.in(args.call.mean_strides, one.entry, one.mean),
      means);
}

/// A block has the pieces that begin in a window of tokens, in one slab of columns. Groups of lanes
/// share out short segments, and the tokens of every other piece.
template <class Kernel, int Vector, class Weights>
__global__ void __launch_bounds__(pooling_threads_sm80,
                                  resolved(Kernel::config).streams > 4 ? 2 : 3)
    sum_pieces(launch_args args) {
  using element = element_t<Kernel::config.type>;
  prim::cuda::let_next_grid_start();
  const mean_pooling_kernel_args& call = args.call;
  const pooling_schedule_sm80& cut = args.cut;
  for (std::int64_t item = blockIdx.x; item < cut.items(); item += gridDim.x) {
    const std::int64_t window = item / cut.slabs;
    const std::int64_t low = window * cut.window;
    const std::int64_t high = window + 1 < cut.windows ? low + cut.window : INT64_MAX;
    const thread_place place(args, item % cut.slabs);
    segment_cursor segments(args, low, high);
    segment one;
    for (int turn = 0; segments.next(one);) {
      const Weights weights(call, one.entry);
      const auto* const row_0 =
          static_cast<const element*>(call.from) + place.in(call.token_strides, one.entry, 0);
      const bool alone = one.length() <= pooling_group_tokens_sm80;
      const std::int64_t piece = cut.piece_of(one.length());
      const std::int64_t pieces = cut.pieces_of(one.length());
      const std::int64_t before = one.begin < low ? low - one.begin : 0;
      for (std::int64_t index = before > 0 ? (before + piece - 1) / piece : 0;
           index < pieces && one.begin + index * piece < high; ++index) {
        const std::int64_t first = one.begin + index * piece;
        const std::int64_t tokens = one.end - first < piece ? one.end - first : piece;
        const bool ours = place.active && (!alone || turn == place.group);
        if (alone) turn = turn + 1 < cut.groups ? turn + 1 : 0;
        const int group = alone ? 0 : place.group;
        const std::int64_t count = alone ? tokens : (tokens - group + cut.groups - 1) / cut.groups;
        float sums[Vector] = {};
        sum_tokens<Kernel>(row_0, call.token_strides.row, weights, first - one.first_row + group,
                           alone ? 1 : cut.groups, ours ? count : 0, sums);
        if (!alone) add_groups(sums, place, cut);
        if (!ours || (!alone && place.group > 0)) continue;
        if (pieces == 1) {
          store_means<element>(args, place, one, sums);
        } else {
          float* const partial = args.partials +
                                 cut.slot_of(first, index) * call.heads * call.columns +
                                 place.head * call.columns + place.column;
#pragma unroll
          for (int v = 0; v < Vector; ++v) partial[v] = sums[v];
        }
      }
    }
    if (window + 1 < cut.windows || args.chunks_before == nullptr || !place.active) continue;
    // Means behind the last chunk.
    one.entry = 0;
    one.mean = args.chunks_before[call.sequences];
    for (one.mean += place.group; one.has_mean(call); one.mean += cut.groups) {
      store<pooling_stores::cached>(
          static_cast<element*>(call.to) + place.in(call.mean_strides, 0, one.mean),
          elements<element, Vector>{});
    }
  }
}

/// Adds up, in double, the pieces of the segments that begin in a window.
template <class Kernel>
__global__ void __launch_bounds__(pooling_threads_sm80) combine_pieces(launch_args args) {
  using element = element_t<Kernel::config.type>;
  constexpr int lanes = pooling_combined_columns_sm80;
  constexpr int groups = pooling_threads_sm80 / lanes;
  __shared__ double exchanged[pooling_threads_sm80];
  const mean_pooling_kernel_args& call = args.call;
  const pooling_schedule_sm80& cut = args.cut;
  const std::int64_t width = call.heads * call.columns;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  for (std::int64_t item = blockIdx.x; item < cut.combine_items(); item += gridDim.x) {
    const std::int64_t low = item / cut.combine_slabs * cut.combine_window;
    const std::int64_t column = item % cut.combine_slabs * lanes + lane;
    segment_cursor segments(args, low, low + cut.combine_window);
    for (segment one; segments.next(one);) {
      const std::int64_t pieces = cut.pieces_of(one.length());
      if (one.begin < low || pieces == 1) continue;
      prim::cuda::wait_for_grid_before();
      const std::int64_t piece = cut.piece_of(one.length());
      double sum = 0;
#pragma unroll 8
      for (std::int64_t index = group; index < pieces; index += groups) {
        const std::int64_t slot = cut.slot_of(one.begin + index * piece, index);
        if (column < width) sum += static_cast<double>(args.partials[slot * width + column]);
      }
      __syncthreads();
      exchanged[threadIdx.x] = sum;
      __syncthreads();
      if (group > 0 || column >= width || !one.has_mean(call)) continue;
      for (int other = 1; other < groups; ++other) sum += exchanged[other * lanes + lane];
      const pooling_strides& to = call.mean_strides;
      const std::int64_t head = column / call.columns;
      static_cast<element*>(call.to)[one.entry * to.entry + one.mean * to.row + head * to.head +
                                     column % call.columns] =
          prim::cuda::nearest<element>(mean_of(static_cast<float>(sum), divisor_of(args, one)));
    }
  }
  // What the next grid reads must be complete when this one is, also where nothing was combined.
  if (blockIdx.x == 0) prim::cuda::wait_for_grid_before();
}

}  // namespace tessera::kernels::mean_pooling::sm80
