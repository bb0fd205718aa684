// Native sparse attention of any type and head dim: 16 rows, of which each is a token and a head of
// a group, against the keys of each branch. Products are multiplications of floats.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

template <class Kernel>
__global__ void __launch_bounds__(threads, 1)
    native_sparse_attend(const __grid_constant__ native_sparse_launch launch, std::int64_t items) {
  extern __shared__ float native_memory[];
  const native_sparse_kernel_args& call = launch.call;
  const float_tile q(native_memory, call.head_dim);
  const float_tile k(q.end(), call.head_dim);
  const float_tile v(k.end(), call.v_head_dim);
  const int r = line_of_thread(), j = place_of_thread();
  const std::int64_t of_part = call.kv_heads * launch.lists_of_group();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence_part part = launch.part(item / of_part, launch.tokens_of_list());
    if (part.is_empty) continue;
    const row_list list = row_list::of(launch, part, item % of_part / launch.lists_of_group(),
                                       item % launch.lists_of_group());
    __syncthreads();
    list.load(q, call.q);
    line_sums out;
    out.clear();
#pragma unroll 1
    for (int number = 0; number < sparse_branches; ++number) {
      const auto branch = static_cast<sparse_branch>(number);
      if (!launch.has(branch)) continue;
      if (branch == sparse_branch::selected && launch.others.data != nullptr) continue;
      attention_line line;
      line.start();
      list.for_each_tile(launch, branch, [&](std::int64_t first, int count, bool is_for_row) {
        __syncthreads();
        launch.load_keys(k, v, branch, list.tokens, list.kv_head, first, count);
        __syncthreads();
        float score = prim::minus_infinity;
        if (is_for_row && j < count) {
          const key_range seen = launch.seen(branch, list.token_of(r));
          if (first + j >= seen.begin && first + j < seen.end) {
            score = call.softmax_scale * dot(q.row(r), k.row(j), k.columns);
          }
        }
        line.add(score, v);
      });
      static_cast<void>(line.finish(nullptr, 0, 0));
      if (r >= list.rows) continue;
      const float gate = launch.gate_of(branch, list.tokens, list.token_of(r), list.head_of(r));
#pragma unroll
      for (int i = 0; i < most_columns; ++i) out.at[i] = fmaf(gate, line.sums.at[i], out.at[i]);
    }
    if (r >= list.rows) continue;
    const sparse_rows& to = launch.others.data != nullptr ? launch.others : call.out;
    out.store(to, native_sparse_launch::offset(to, list.tokens, list.token_of(r), list.head_of(r)),
              call.v_head_dim, 1.0f);
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
