// Gradients of queries and gates of native sparse attention: the keys of each branch are walked
// through once for lse and output times gradient, and once more for d_q.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/gradient_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// What is known of a row and branch once its keys were looked at.
struct branch_statistics {
  float lse, correction, d_gate;
};

__device__ __forceinline__ void store_statistics(const native_sparse_launch& launch,
                                                 sparse_branch branch, const row_list& list, int r,
                                                 const branch_statistics& found) {
  const native_sparse_kernel_args& call = launch.call;
  const std::int64_t token = list.token_of(r), head = list.head_of(r);
  const std::int64_t at = launch.statistic(branch, list.tokens, token, head);
  launch.lse[at] = found.lse;
  launch.correction[at] = found.correction;
  const sparse_rows& to = branch == sparse_branch::compressed ? call.d_g_cmp
                          : branch == sparse_branch::selected ? call.d_g_slc
                                                              : call.d_g_swa;
  if (to.data == nullptr) return;
  prim::cuda::put_number(to.data, to.type,
                         native_sparse_launch::offset(to, list.tokens, token, head), found.d_gate);
}

/// d_q and gradients of gates; lse and D of each branch and row. A line of threads is a row.
template <class Kernel>
__global__ void __launch_bounds__(threads, 1)
    native_sparse_query_gradients(const __grid_constant__ native_sparse_launch launch,
                                  std::int64_t items) {
  extern __shared__ float native_memory[];
  const native_sparse_kernel_args& call = launch.call;
  const gradient_tiles tiles(native_memory, call.head_dim, call.v_head_dim);
  const int r = line_of_thread(), j = place_of_thread();
  const std::int64_t of_part = call.kv_heads * launch.lists_of_group();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence_part part = launch.part(item / of_part, launch.tokens_of_list());
    if (part.is_empty) continue;
    const row_list list = row_list::of(launch, part, item % of_part / launch.lists_of_group(),
                                       item % launch.lists_of_group());
    const bool is_row = r < list.rows;
    __syncthreads();
    list.load(tiles.q, call.q);
    list.load(tiles.d_out, call.d_out);
    line_sums d_q;
    d_q.clear();
#pragma unroll 1
    for (int number = 0; number < sparse_branches; ++number) {
      const auto branch = static_cast<sparse_branch>(number);
      if (!launch.has(branch)) continue;
      softmax_line softmax;
      float sum = 0.0f, gate = 1.0f, shift = 0.0f, correction = 0.0f;
#pragma unroll 1
      for (int time = 0; time < 2; ++time) {
        const bool first_time = time == 0;
        list.for_each_tile(launch, branch, [&](std::int64_t first, int count, bool is_for_row) {
          __syncthreads();
          launch.load_keys(tiles.k, tiles.v, branch, list.tokens, list.kv_head, first, count);
          __syncthreads();
          float score = prim::minus_infinity, gradient = 0.0f;
          if (is_for_row && j < count) {
            const key_range seen = launch.seen(branch, list.token_of(r));
            if (first + j >= seen.begin && first + j < seen.end) {
              score = call.softmax_scale * dot(tiles.q.row(r), tiles.k.row(j), tiles.k.columns);
              gradient = dot(tiles.d_out.row(r), tiles.v.row(j), tiles.v.columns);
            }
          }
          if (first_time) {
            float rescale;
            const float weight = softmax.take(score, rescale);
            sum *= rescale;
            if (weight != 0.0f) sum = fmaf(weight, gradient, sum);
          } else {
            d_q.add(
                pair_gradient::of(score, gate * gradient, 1.0f, shift, correction, 1.0f).d_score,
                tiles.k);
          }
        });
        if (!first_time) break;
        const prim::softmax_result done = prim::finish_row(softmax, nullptr, 0, 0, true);
        sum = sum_of_line(sum);
        const float d_gate = done.lse == prim::minus_infinity ? 0.0f : sum * done.scale;
        if (is_row) gate = launch.gate_of(branch, list.tokens, list.token_of(r), list.head_of(r));
        shift = done.lse;
        correction = d_gate * gate;
        if (is_row && j == 0) {
          store_statistics(launch, branch, list, r, {shift, correction, d_gate});
        }
      }
    }
    if (!is_row) continue;
    d_q.store(
        call.d_q,
        native_sparse_launch::offset(call.d_q, list.tokens, list.token_of(r), list.head_of(r)),
        call.head_dim, call.softmax_scale);
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
