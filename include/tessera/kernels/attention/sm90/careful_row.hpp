// What is left for rows whose sums are not finite: one row by one warp, from global memory, where
// nothing that the row does not see is touched. Rare, and little code. And what every row ends
// with.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/common/score_mod_row.hpp>
#include <tessera/kernels/attention/sm90/pages.hpp>
#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

__device__ __forceinline__ prim::softmax_result finished(const attention_kernel_args& call,
                                                         int head,
                                                         const prim::softmax_state& state) {
  return prim::finish_row(
      state, call.sinks != nullptr ? call.sinks + head * call.sink_head_stride : nullptr,
      call.sink_count, call.sink_stride, call.normalize);
}

__device__ __forceinline__ void report(const attention_kernel_args& call, const work_tile& work,
                                       const query_row& row, const prim::softmax_result& result) {
  const std::int64_t token = work.q_begin + row.query;
  const auto write = [&](const row_statistics& to, float value) {
    if (to.data != nullptr) {
      to.data[entry_of(call, work) * to.batch + row.head * to.head + token * to.row] = value;
    }
  };
  write(call.lse, result.lse);
  write(call.row_max, result.row_max);
}

/// Where row `row` of an item of a list leaves its sums.
template <class Traits>
__device__ __forceinline__ std::int64_t place_of_partial(const planned_tile<Traits>& planned,
                                                         int row) {
  return planned.first_partial + static_cast<std::int64_t>(row) * planned.partials_of_row;
}

/// Row `row` of a work tile.
template <class Traits>
class careful_row {
  using words = typename Traits::words;
  using stored = typename Traits::stored;
  /// Columns of a lane: lane + 32 i.
  static constexpr int qk_columns = (Traits::head_dim + 31) / 32;
  static constexpr int v_columns = (Traits::v_head_dim + 31) / 32;

 public:
  __device__ __forceinline__ careful_row(const launch_args& args,
                                         const typename Traits::hooks& hooks,
                                         const planned_tile<Traits>& planned, int row)
      : args_(args),
        call_(args.call),
        hooks_(hooks),
        planned_(planned),
        work_(planned.work),
        keys_(planned.keys[row]),
        row_(row),
        at_(query_of(args, planned.work, row)) {}

  __device__ __forceinline__ void write() {
    float sums[v_columns] = {};
    const prim::softmax_state state = attend(sums);
    const prim::softmax_result result = finished(call_, at_.head, state);
    const float scale = result.scale * value_scale_of_head<Traits>(args_, at_.head);
    std::uint16_t* out = token_row(call_.out, call_.out_strides, entry_of(call_, work_),
                                   work_.q_begin + at_.query, at_.head);
#pragma unroll
    for (int i = 0; i < v_columns; ++i) {
      const int column = lane() + 32 * i;
      if (column < Traits::v_head_dim) {
        out[column] = static_cast<std::uint16_t>(pack_out<Traits>(args_, sums[i] * scale, 0.0f));
      }
    }
    if (lane() == 0) report(call_, work_, at_, result);
  }

  /// What the row leaves of an item of a list.
  __device__ __forceinline__ void leave() {
    float sums[v_columns] = {};
    const prim::softmax_state state = attend(sums);
    const std::int64_t at = place_of_partial(planned_, row_);
    for (int i = 0; i < v_columns; ++i) {
      const int column = lane() + 32 * i;
      if (column < Traits::v_head_dim) {
        args_.partial_out[at * args_.partial_stride + column] = sums[i];
      }
    }
    if (lane() != 0) return;
    args_.partial_stats[2 * at] = sm80::maximum_left(state);
    args_.partial_stats[2 * at + 1] = state.denominator;
  }

 private:
  /// The row's sums, relative to its maximum.
  __device__ __forceinline__ prim::softmax_state attend(float (&sums)[v_columns]) {
    const stored* q = token_row<stored>(call_.q, call_.q_strides, entry_of(call_, work_),
                                        work_.q_begin + at_.query, at_.head);
#pragma unroll
    for (int i = 0; i < qk_columns; ++i) {
      q_[i] = element(q, i, Traits::head_dim);
      if constexpr (Traits::paged) {
        const float divided_by_scale = divided<typename Traits::element>(q_[i], call_.q_divisor);
        q_[i] = words::unpack(static_cast<std::uint16_t>(words::pack(divided_by_scale, 0.0f)));
      }
    }
    prim::softmax_state state;
#pragma unroll 1
    for (int key = keys_.begin; key < keys_.end; ++key) {
      state.maximum = fmaxf(state.maximum, logit_of(key));  // of numbers: NaN enters the sum below
    }
    const float shift = prim::finite_maximum(state.maximum);
#pragma unroll 1
    for (int key = keys_.begin; key < keys_.end; ++key) {
      const float logit = logit_of(key);
      if (Traits::modifies && logit == prim::minus_infinity) continue;
      float weight = prim::cuda::exp2_fast((logit - shift) * prim::log2_e);
      state.denominator += weight;
      if constexpr (Traits::drops) {
        if (!keeps_weight(args_, work_.sequence, at_, key)) weight = 0.0f;
      }
      const stored* v = key_row<Traits>(args_, work_, call_.v, call_.v_strides, key);
#pragma unroll
      for (int i = 0; i < v_columns; ++i) {
        sums[i] = fmaf(weight, element(v, i, Traits::v_head_dim), sums[i]);
      }
    }
    return state;
  }

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  }
  static __device__ __forceinline__ float element(const stored* row, int i, int width) {
    const int column = lane() + 32 * i;
    return column < width ? words::unpack(row[column]) : 0.0f;
  }

  __device__ __forceinline__ float logit_of(int key) const {
    const stored* k = key_row<Traits>(args_, work_, call_.k, call_.k_strides, key);
    constexpr int of_tail = Traits::tail_columns / 32;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < qk_columns - of_tail; ++i) {
      score = fmaf(q_[i], element(k, i, Traits::head_dim), score);
    }
    if constexpr (of_tail > 0) {
      const stored* tail =
          key_row<Traits>(args_, work_, call_.k_tail.data, call_.k_tail.strides, key);
#pragma unroll
      for (int i = 0; i < of_tail; ++i) {
        score = fmaf(q_[qk_columns - of_tail + i], element(tail, i, call_.k_tail.columns), score);
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      score += __shfl_xor_sync(prim::cuda::all_lanes, score, step);
    }
    if (!Traits::modifies || args_.plain) score *= scale_of_head<Traits>(args_, at_.head);
    if constexpr (Traits::caps_products) {
      if (call_.soft_cap > 0.0f) {
        score = call_.soft_cap * prim::cuda::tanh_fast(score / call_.soft_cap);
      }
    }
    if constexpr (Traits::modifies) {
      float logits[1] = {score};
      score_mod_row<modified_traits<Traits>, typename Traits::hooks>::apply_row(
          args_, hooks_, logits, position_of(args_, planned_, row_), [key](int) { return key; },
          {keys_.begin, keys_.end}, true);
      return logits[0];
    }
    return score;
  }

  const launch_args& args_;
  const attention_kernel_args& call_;
  const typename Traits::hooks& hooks_;
  const planned_tile<Traits>& planned_;
  const work_tile& work_;
  const row_keys keys_;
  const int row_;
  const query_row at_;
  float q_[qk_columns];
};

}  // namespace tessera::kernels::attention::sm90
