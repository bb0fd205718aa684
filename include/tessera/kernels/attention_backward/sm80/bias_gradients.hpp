// Gradients of biases: those of scores, summed in one order over the axes that the bias broadcasts.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/any_row.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// Numbers [begin, end) of an axis, `step` of which a block takes at a time.
struct axis_part {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  /// Those that a block owns of an axis with `extent` gradients, or all `length` of one that is
  /// summed over; `item` loses the number of the part.
  static __device__ axis_part of(std::int64_t& item, std::int64_t extent, std::int64_t step,
                                 std::int64_t length) {
    if (extent <= 1) return {0, length};
    const std::int64_t count = (extent + step - 1) / step;
    const std::int64_t begin = item % count * step;
    item /= count;
    return {begin, begin + step < extent ? begin + step : extent};
  }
};

/// Blocks of a launch.
inline std::int64_t bias_items(const score_gradient& to) {
  if (to.batches * to.heads * to.rows * to.columns == 0) return 0;
  const auto parts = [](std::int64_t extent, std::int64_t step) {
    return extent > 1 ? (extent + step - 1) / step : 1;
  };
  return parts(to.batches, 1) * parts(to.heads, 1) * parts(to.rows, any_tile) *
         parts(to.columns, any_tile);
}

__device__ __forceinline__ void put_gradient(const score_gradient& to, std::int64_t at,
                                             float value) {
  if (to.type == dtype::f32) {
    static_cast<float*>(to.data)[at] = value;
  } else {
    const std::uint32_t bits = to.type == dtype::f16
                                   ? prim::cuda::half_words<f16>::pack(value, 0.0f)
                                   : prim::cuda::half_words<bf16>::pack(value, 0.0f);
    static_cast<std::uint16_t*>(to.data)[at] = static_cast<std::uint16_t>(bits);
  }
}

/// A block owns 16 x 16 gradients, or as many as there are on an axis that has one; a thread adds
/// up its pairs of all tiles that reach them.
template <class Element, class Hooks>
__global__ void __launch_bounds__(threads)
    bias_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  extern __shared__ __align__(16) unsigned char any_bytes[];
  __shared__ any_memory memory;
  __shared__ double sums[any_tile][any_tile];
  const attention_kernel_args& of = args.call.forward;
  const score_gradient& to = args.d_bias();
  std::int64_t item = blockIdx.x;
  const axis_part keys_owned = axis_part::of(item, to.columns, any_tile, INT64_MAX);
  const axis_part queries_owned = axis_part::of(item, to.rows, any_tile, INT64_MAX);
  const axis_part heads = axis_part::of(item, to.heads, 1, of.q_heads);
  const axis_part entries = axis_part::of(item, to.batches, 1, of.batch);
  const any_layout<Element> tiles(any_bytes, of);
  const int i = static_cast<int>(threadIdx.x) / any_tile;
  const int j = static_cast<int>(threadIdx.x) % any_tile;
  double sum = 0.0;
  for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
    const block_sequence block = block_sequence::of(of, entry);
    const prim::sequence& seq = block.seq;
    const any_pairs<Element, Hooks> pairs{args, block, memory, tiles.queries, tiles.keys};
    const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
    const std::int64_t q_end = queries_owned.end < seq.q_len ? queries_owned.end : seq.q_len;
    const std::int64_t k_end = keys_owned.end < seq.k_len ? keys_owned.end : seq.k_len;
    for (auto head = static_cast<int>(heads.begin); head < heads.end; ++head) {
      for (std::int64_t query0 = queries_owned.begin; query0 < q_end; query0 += any_tile) {
        const std::int64_t last = query0 + any_tile < q_end ? query0 + any_tile : q_end;
        const prim::key_interval seen =
            prim::intersection(visible.keys_of(query0, last - 1).some, {keys_owned.begin, k_end});
        if (seen.empty()) continue;
        __syncthreads();
        pairs.load_queries(query0, head);
        const std::int64_t first =
            keys_owned.begin + (seen.begin - keys_owned.begin) / any_tile * any_tile;
        for (std::int64_t key0 = first; key0 < seen.end; key0 += any_tile) {
          __syncthreads();
          pairs.load_keys(key0, head / kernels::attention::group_of(of));
          __syncthreads();
          const score_gradients found = pairs.compute(query0, key0, head, visible).gradients;
          sum += static_cast<double>(args.behind_cap ? found.behind_cap : found.before_cap);
        }
      }
    }
  }
  sums[i][j] = sum;
  __syncthreads();
  if ((to.rows <= 1 && i > 0) || (to.columns <= 1 && j > 0)) return;
  sum = 0.0;
  for (int row = i; row < (to.rows <= 1 ? any_tile : i + 1); ++row) {
    for (int column = j; column < (to.columns <= 1 ? any_tile : j + 1); ++column) {
      sum += sums[row][column];
    }
  }
  const std::int64_t query = to.rows <= 1 ? 0 : queries_owned.begin + i;
  const std::int64_t key = to.columns <= 1 ? 0 : keys_owned.begin + j;
  if (query >= (to.rows <= 1 ? 1 : to.rows) || key >= (to.columns <= 1 ? 1 : to.columns)) return;
  const score_place at{to.batches <= 1 ? 0 : entries.begin,
                       to.heads <= 1 ? 0 : static_cast<int>(heads.begin), query, key};
  put_gradient(to, at.offset_in(to), static_cast<float>(sum));
}

}  // namespace tessera::kernels::attention_backward::sm80
