// The gradient of every token: that of its mean, times its share of it.
#pragma once

#include <cstdint>

#include <tessera/kernels/mean_pooling/sm80/access.hpp>
#include <tessera/kernels/mean_pooling/sm80/segments.hpp>
#include <tessera/prim/cuda/element_cast.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

template <class Element, int Vector>
__device__ __forceinline__ elements<Element, Vector> scaled(const elements<Element, Vector>& x,
                                                            float factor) {
  elements<Element, Vector> product;
#pragma unroll
  for (int v = 0; v < Vector; ++v)
    product.x[v] = prim::cuda::nearest<Element>(prim::cuda::float_of(x.x[v]) * factor);
  return product;
}

/// A block writes the tokens of a window, in one slab of columns; groups of lanes take turns.
template <class Kernel, int Vector, class Weights>
__global__ void __launch_bounds__(pooling_threads_sm80) spread_gradients(launch_args args) {
  using element = element_t<Kernel::config.type>;
  using row = elements<element, Vector>;
  constexpr pooling_stores stores = Kernel::config.stores;
  const mean_pooling_kernel_args& call = args.call;
  const pooling_schedule_sm80& cut = args.cut;
  for (std::int64_t item = blockIdx.x; item < cut.items(); item += gridDim.x) {
    const std::int64_t low = item / cut.slabs * cut.window;
    const std::int64_t high = low + cut.window < cut.tokens ? low + cut.window : cut.tokens;
    const thread_place place(args, item % cut.slabs);
    std::int64_t written = low;
    segment_cursor segments(args, low, high);
    for (segment one; segments.next(one);) {
      const std::int64_t first = one.begin > low ? one.begin : low;
      const std::int64_t last = one.end < high ? one.end : high;
      written = last > written ? last : written;
      if (!place.active) continue;
      const Weights weights(call, one.entry);
      auto* const row_0 =
          static_cast<element*>(call.to) + place.in(call.token_strides, one.entry, 0);
      row mean{};
      if (one.has_mean(call)) {
        mean = *reinterpret_cast<const row*>(static_cast<const element*>(call.from) +
                                             place.in(call.mean_strides, one.entry, one.mean));
      }
      const double total =
          Weights::masked ? args.totals[one.entry] : static_cast<double>(one.length());
      const double share = total != 0.0 ? 1.0 / total : 0.0;
      row gradient = scaled(mean, static_cast<float>(share));
#pragma unroll 4
      for (std::int64_t token = first + place.group; token < last; token += cut.groups) {
        const std::int64_t at = token - one.first_row;
        if constexpr (Weights::masked) {
          // A weight of 0 gives 0, whatever the gradient of the mean is.
          const float weight = weights.value_of(weights.bits_of(at));
          const bool counts = weight != 0.0f && total != 0.0;
          gradient = counts ? scaled(mean, static_cast<float>(weight * share)) : row{};
        }
        store<stores>(row_0 + at * call.token_strides.row, gradient);
      }
    }
    if (!place.active) continue;
    // Tokens behind the last sequence.
    for (std::int64_t token = written + place.group; token < high; token += cut.groups) {
      store<stores>(static_cast<element*>(call.to) + place.in(call.token_strides, 0, token), row{});
    }
  }
}

}  // namespace tessera::kernels::mean_pooling::sm80
