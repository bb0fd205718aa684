// Writing finished rows.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr float ln_2 = 0.693147180559945309417f;

/// The row's place among all rows of a launch: of its splits in the workspace.
__device__ __forceinline__ std::int64_t flat_row(const attention_kernel_args& call,
                                                 const prim::sequence& seq, const query_row& row) {
  const std::int64_t token =
      call.cu_seqlens_q != nullptr ? seq.q_begin + row.query : seq.index * call.q_len + row.query;
  return token * call.q_heads + row.head;
}

__device__ __forceinline__ prim::softmax_result finished(const attention_kernel_args& call,
                                                         int head,
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

__device__ __forceinline__ void report(const attention_kernel_args& call, const prim::sequence& seq,
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

/// Writes a row of `width` units of 16 bits gathered in shared memory, lane by lane of `lanes`.
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
  const attention_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  for (int r = first + static_cast<int>(threadIdx.x) / prim::cuda::warp_size; r < range.rows;
       r += Traits::warps) {
    const query_row row = query_of(args, range.kv_head, range.first_row + r);
    auto* out = token_row<typename Traits::stored>(call.out, call.out_strides, range.seq,
                                                   range.seq.q_begin + row.query, row.head);
    for (int d = lane; d < call.v_head_dim; d += prim::cuda::warp_size) out[d] = 0;
    if (lane == 0) report(call, range.seq, row, {});
  }
}

}  // namespace tessera::kernels::attention::sm80
