// Blocksparse attention of any type and head dim: for each 16 query rows, the tiles of keys that
// they see some of. Products are multiplications of floats; f16 and bf16 have rows for the matrix
// unit (dense.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/blocksparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

template <class Kernel, class Mask>
__global__ void __launch_bounds__(threads)
    blocksparse_attend(const __grid_constant__ blocksparse_launch<Mask> launch,
                       std::int64_t items) {
  extern __shared__ float blocksparse_memory[];
  __shared__ seen_tiles seen;
  const blocksparse_kernel_args& call = launch.call;
  const float_tile q(blocksparse_memory, call.head_dim);
  const float_tile k(q.end(), call.head_dim);
  const float_tile v(k.end(), call.v_head_dim);
  const score_units units{call.softmax_scale, call.soft_cap};
  const int r = line_of_thread(), j = place_of_thread();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const tile_place rows = tile_place::of(item, call.q_heads, call.q_len);
    const std::int64_t row = rows.first + r;
    const bool is_row = r < rows.count;
    __syncthreads();
    rows.load(q, call.q);
    row_view view{};
    if (is_row) view = launch.pairs.view_of(rows.entry, row);
    attention_line line;
    line.start();
    for_each_seen_tile(launch, rows, seen, [&](const tile_place& keys, prim::tile_visibility some) {
      __syncthreads();
      keys.load(k, call.k);
      keys.load(v, call.v);
      __syncthreads();
      const bool sees = is_row && j < keys.count &&
                        (some == prim::tile_visibility::full ||
                         launch.pairs.sees(view, rows.entry, rows.head, row, keys.first + j));
      const float score =
          sees ? units.logit(dot(q.row(r), k.row(j), k.columns)) : prim::minus_infinity;
      line.add(score, v);
    });
    const sparse_sinks& sinks = call.sinks;
    const bool has_sinks = sinks.data != nullptr;
    const prim::softmax_result done =
        line.finish(has_sinks ? sinks.data + rows.head * sinks.head : nullptr,
                    has_sinks ? call.sink_count : 0, sinks.sink);
    if (!is_row) continue;
    line.sums.store(call.out, offset_in(call.out, rows.entry, rows.head, row), call.v_head_dim,
                    1.0f);
    if (j == 0 && call.lse.data != nullptr) {
      call.lse.data[offset_in(call.lse, rows.entry, rows.head, row)] = done.lse;
    }
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
