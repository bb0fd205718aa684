// Writing finished rows, and merging the splits of rows whose keys were worked on by several
// blocks.
#pragma once

#include <cstdint>

#include <tessera/kernels/flash_attention/sm80_block.hpp>
#include <tessera/kernels/flash_attention/sm80_plan.hpp>
#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

inline constexpr float ln_2 = 0.693147180559945309417f;

/// The row's place among all rows of a launch: of its splits in the workspace.
__device__ __forceinline__ std::int64_t flat_row(const flash_kernel_args& call,
                                                 const prim::sequence& seq, const query_row& row) {
  const std::int64_t token =
      call.cu_seqlens_q != nullptr ? seq.q_begin + row.query : seq.index * call.q_len + row.query;
  return token * call.q_heads + row.head;
}

__device__ __forceinline__ prim::softmax_result finished(const flash_kernel_args& call, int head,
                                                         const prim::softmax_state& state) {
  prim::softmax_result result = prim::finish_row(
      state, call.sinks != nullptr ? call.sinks + head * call.sink_head_stride : nullptr,
      call.sink_count, call.sink_stride, call.normalize);
  if (call.dropout) result.scale *= call.dropout_scale;
  return result;
}

/// The same for a state whose weights are 2^headroom larger than its maximum says.
__device__ __forceinline__ prim::softmax_result finished_sums(const launch_args& args, int head,
                                                              prim::softmax_state state) {
  const float smaller = prim::cuda::exp2_fast(-args.headroom);
  state.maximum += args.headroom * ln_2;
  state.denominator *= smaller;
  prim::softmax_result result = finished(args.call, head, state);
  result.scale *= smaller;
  return result;
}

__device__ __forceinline__ void report(const flash_kernel_args& call, const prim::sequence& seq,
                                       const query_row& row, const prim::softmax_result& result) {
  const std::int64_t token = seq.q_begin + row.query;
  const auto write = [&](const row_statistics& to, float value) {
    if (to.data != nullptr) {
      to.data[seq.index * to.batch + row.head * to.head + token * to.row] = value;
    }
  };
  write(call.lse, result.lse);
  write(call.row_max, result.row_max);
}

/// Writes a row of `v_head_dim` elements gathered in shared memory, lane by lane of `lanes`.
template <class Tile>
__device__ __forceinline__ void write_row(std::uint32_t tile, int row_in_tile, std::uint16_t* out,
                                          int width, bool aligned, int lane, int lanes) {
  for (int at = lane; at * 8 < width; at += lanes) {
    std::uint32_t words[4];
    prim::cuda::load_shared_16(
        words, tile + Tile::offset(static_cast<unsigned>(row_in_tile), static_cast<unsigned>(at)));
    if (aligned && at * 8 + 8 <= width) {
      *reinterpret_cast<uint4*>(out + at * 8) = make_uint4(words[0], words[1], words[2], words[3]);
      continue;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (at * 8 + e < width) {
        out[at * 8 + e] = static_cast<std::uint16_t>(words[e / 2] >> (16 * (e % 2)));
      }
    }
  }
}

/// A block that has nothing to add: rows that see no key, or are not used.
template <class Traits>
__device__ __forceinline__ void write_empty_rows(const launch_args& args, const row_range& range,
                                                 int first) {
  const flash_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  for (int r = first + static_cast<int>(threadIdx.x) / prim::cuda::warp_size; r < range.rows;
       r += Traits::warps) {
    const query_row row = query_of(args, range.kv_head, range.first_row + r);
    auto* out = token_row<std::uint16_t>(call.out, call.out_strides, range.seq,
                                         range.seq.q_begin + row.query, row.head);
    for (int d = lane; d < call.v_head_dim; d += prim::cuda::warp_size) out[d] = 0;
    if (lane == 0) report(call, range.seq, row, {});
  }
}

/// Merges the splits of every used row: one warp a row.
template <class Row>
__global__ void merge_splits(const __grid_constant__ launch_args args, std::int64_t rows) {
  using words = prim::cuda::half_words<element_t<Row::config.type>>;
  const flash_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const std::int64_t flat =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / prim::cuda::warp_size) +
      threadIdx.x / prim::cuda::warp_size;
  if (flat >= rows) return;
  query_row row{0, static_cast<int>(flat % call.q_heads)};
  const std::int64_t token = flat / call.q_heads;
  prim::sequence seq;
  if (call.cu_seqlens_q != nullptr) {
    // Rows behind the last sequence were written by the blocks that found them unused.
    if (token >= call.cu_seqlens_q[call.batch]) return;
    seq.q_begin = token;
  } else {
    seq = prim::sequence_of(call, token / call.q_len);
    row.query = static_cast<int>(token % call.q_len);
    if (row.query >= seq.q_len) return;
  }
  // Lane l looks after splits l, l + 32, ...
  constexpr int per_lane_splits = most_splits / prim::cuda::warp_size;
  const auto* states = reinterpret_cast<const float2*>(args.states) + flat * args.splits;
  float2 mine[per_lane_splits];
  prim::softmax_state state;
#pragma unroll
  for (int i = 0; i < per_lane_splits; ++i) {
    const int s = i * prim::cuda::warp_size + lane;
    mine[i] = s < args.splits ? states[s] : make_float2(prim::minus_infinity, 0.0f);
    state.maximum = fmaxf(state.maximum, mine[i].x);
  }
  for (int step = 16; step > 0; step /= 2) {
    state.maximum =
        fmaxf(state.maximum, __shfl_xor_sync(prim::cuda::all_lanes, state.maximum, step));
  }
  const float shift = prim::finite_maximum(state.maximum);
#pragma unroll
  for (int i = 0; i < per_lane_splits; ++i) {
    mine[i].x = exp2f((mine[i].x - shift) * prim::log2_e);  // the split's weight
    if (mine[i].y != 0.0f) state.denominator += mine[i].y * mine[i].x;
  }
  for (int step = 16; step > 0; step /= 2) {
    state.denominator += __shfl_xor_sync(prim::cuda::all_lanes, state.denominator, step);
  }
  constexpr int per_lane = max_head_dim / prim::cuda::warp_size;
  float sum[per_lane] = {};
  const float* from = args.sums + flat * args.splits * args.v_stride;
#pragma unroll
  for (int i = 0; i < per_lane_splits; ++i) {
    const int splits_here = min(prim::cuda::warp_size, args.splits - i * prim::cuda::warp_size);
#pragma unroll 4
    for (int s = 0; s < splits_here; ++s) {
      const float weight = __shfl_sync(prim::cuda::all_lanes, mine[i].x, s);
#pragma unroll
      for (int part = 0; part < per_lane; ++part) {
        const int d = lane + part * prim::cuda::warp_size;
        const float value = d < call.v_head_dim ? from[d] : 0.0f;
        sum[part] = weight != 0.0f ? fmaf(weight, value, sum[part]) : sum[part];
      }
      from += args.v_stride;
    }
  }
  const prim::softmax_result result = finished_sums(args, row.head, state);
  auto* out =
      token_row<std::uint16_t>(call.out, call.out_strides, seq, seq.q_begin + row.query, row.head);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int d = lane + i * prim::cuda::warp_size;
    if (d < call.v_head_dim) {
      out[d] = static_cast<std::uint16_t>(words::pack(sum[i] * result.scale, 0.0f) & 0xffffu);
    }
  }
  if (lane == 0) report(call, seq, row, result);
}

}  // namespace tessera::flash::sm80
