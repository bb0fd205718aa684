// Merging the splits of rows whose keys were worked on by several blocks. Few rows with many splits
// are waited for by everybody (one token of one sequence): a block has one of them, and all its
// loads are under way at once. Of many rows each is a warp's work.
#pragma once

#include <cstdint>

#include <tessera/kernels/flash_attention/sm80_block.hpp>
#include <tessera/kernels/flash_attention/sm80_finish.hpp>
#include <tessera/kernels/flash_attention/sm80_plan.hpp>
#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

inline constexpr int merge_warps = 8;  ///< of a block
/// From this many rows on a warp has a row, else a block.
inline constexpr std::int64_t many_rows = 1024;

/// A row of the launch; `used` is false behind the used rows of a sequence, which the blocks that
/// found them have written.
struct merged_row {
  prim::sequence seq{};
  query_row row{};
  bool used = true;
};

__device__ __forceinline__ merged_row merged_row_of(const flash_kernel_args& call,
                                                    std::int64_t flat) {
  merged_row found;
  found.row.head = static_cast<int>(flat % call.q_heads);
  const std::int64_t token = flat / call.q_heads;
  if (call.cu_seqlens_q != nullptr) {
    found.used = token < call.cu_seqlens_q[call.batch];
    found.seq.q_begin = token;
  } else {
    found.seq = sequence_of(call, token / call.q_len);
    found.row.query = static_cast<int>(token % call.q_len);
    found.used = found.row.query < found.seq.q_len;
  }
  return found;
}

/// States of a row's splits, of which lane l has those l, l + 32, ...
class split_states {
 public:
  static constexpr int per_lane = most_splits / prim::cuda::warp_size;

  /// `splits` states from `from` on.
  __device__ __forceinline__ split_states(const float2* from, int splits) {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      const int s = i * prim::cuda::warp_size + lane;
      mine_[i] = s < splits ? from[s] : make_float2(prim::minus_infinity, 0.0f);
      merged_.maximum = fmaxf(merged_.maximum, mine_[i].x);
    }
    for (int step = 16; step > 0; step /= 2) {
      merged_.maximum =
          fmaxf(merged_.maximum, __shfl_xor_sync(prim::cuda::all_lanes, merged_.maximum, step));
    }
    const float shift = prim::finite_maximum(merged_.maximum);
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      mine_[i].x = exp2f((mine_[i].x - shift) * prim::log2_e);
      if (mine_[i].y != 0.0f) merged_.denominator += mine_[i].y * mine_[i].x;
    }
    for (int step = 16; step > 0; step /= 2) {
      merged_.denominator += __shfl_xor_sync(prim::cuda::all_lanes, merged_.denominator, step);
    }
  }

  __device__ __forceinline__ const prim::softmax_state& merged() const {
    return merged_;
  }

  /// What the sums of split `s` are multiplied by. All lanes ask for the same.
  __device__ __forceinline__ float weight_of(int s) const {
    float weight = 0.0f;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      const float one = __shfl_sync(prim::cuda::all_lanes, mine_[i].x, s % prim::cuda::warp_size);
      weight = s / prim::cuda::warp_size == i ? one : weight;
    }
    return weight;
  }

 private:
  float2 mine_[per_lane];
  prim::softmax_state merged_;
};

/// Sums of the splits first, first + Step, ... of a row: columns 4 * lane + 128 * part.
template <int Step>
class split_sums {
 public:
  static constexpr int parts = max_head_dim / 128;
  static constexpr int at_once = 4;

  __device__ __forceinline__ split_sums(const float* from, int first, int splits, int stride)
      : from_(from), first_(first), splits_(splits), stride_(stride) {
    fetch(first);
  }

  __device__ __forceinline__ void add_up(const split_states& states) {
    int s = first_;
    for (;;) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float weight = states.weight_of(min(s + i * Step, splits_ - 1));
        if (s + i * Step >= splits_ || weight == 0.0f) continue;
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          sum[part].x = fmaf(weight, fetched_[i][part].x, sum[part].x);
          sum[part].y = fmaf(weight, fetched_[i][part].y, sum[part].y);
          sum[part].z = fmaf(weight, fetched_[i][part].z, sum[part].z);
          sum[part].w = fmaf(weight, fetched_[i][part].w, sum[part].w);
        }
      }
      s += at_once * Step;
      if (s >= splits_) return;
      fetch(s);
    }
  }

  float4 sum[parts] = {};

 private:
  __device__ __forceinline__ void fetch(int first) {
    const int column = static_cast<int>(threadIdx.x) % prim::cuda::warp_size * 4;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int s = first + i * Step;
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        fetched_[i][part] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (s < splits_ && column + part * 128 < stride_) {
          fetched_[i][part] = *reinterpret_cast<const float4*>(
              from_ + static_cast<std::int64_t>(s) * stride_ + column + part * 128);
        }
      }
    }
  }

  const float* from_;
  int first_;
  int splits_;
  int stride_;
  float4 fetched_[at_once][parts];
};

/// `Warps` warps a row of the launch; row `rows` and later are not there.
template <class Row, int Warps>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_splits(const __grid_constant__ launch_args args, std::int64_t rows) {
  using access = stored_element<element_t<Row::config.type>>;
  using sums_type = split_sums<Warps>;
  __shared__ float gathered[merge_warps][max_head_dim];
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const flash_kernel_args& call = args.call;
  const unsigned warp = threadIdx.x / prim::cuda::warp_size;
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const std::int64_t flat =
      static_cast<std::int64_t>(blockIdx.x) * (merge_warps / Warps) + warp / Warps;
  merged_row found;
  found.used = false;
  if (flat < rows) found = merged_row_of(call, flat);
  prim::softmax_result result;
  if (found.used) {
    sums_type sums(args.sums + flat * args.splits * args.v_stride, static_cast<int>(warp % Warps),
                   args.splits, args.v_stride);
    const split_states states(reinterpret_cast<const float2*>(args.states) + flat * args.splits,
                              args.splits);
    sums.add_up(states);
#pragma unroll
    for (unsigned part = 0; part < sums_type::parts; ++part) {
      *reinterpret_cast<float4*>(&gathered[warp][lane * 4 + part * 128]) = sums.sum[part];
    }
    result = finished_sums(args, found.row.head, states.merged());
  }
  __syncthreads();
  if (!found.used) return;
  auto* out = token_row<typename access::type>(call.out, call.out_strides, found.seq,
                                               found.seq.q_begin + found.row.query, found.row.head);
  const unsigned first_warp = warp / Warps * Warps;
  for (unsigned d = threadIdx.x - first_warp * prim::cuda::warp_size;
       d < static_cast<unsigned>(call.v_head_dim); d += Warps * prim::cuda::warp_size) {
    float sum = 0.0f;
#pragma unroll
    for (unsigned w = 0; w < Warps; ++w) sum += gathered[first_warp + w][d];
    out[d] = access::rounded(sum * result.scale);
  }
  if (warp == first_warp && lane == 0) report(call, found.seq, found.row, result);
}

}  // namespace tessera::flash::sm80
