// The end of a thread block: its finished rows, or its part of a split, to global memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/finish.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// `Warp` is the block's `warp_rows`; `q_tile` is where its queries lay in shared memory.
template <class Traits, class Warp>
class block_output {
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  __device__ __forceinline__ block_output(const launch_args& args,
                                          const typename Warp::state& known, const Warp& warp,
                                          std::uint32_t q_tile)
      : args_(args), known_(known), warp_(warp), q_tile_(q_tile) {}

  /// Finishes the block's rows and writes them. Everyone is done with Q, which lies where they are
  /// gathered.
  __device__ __forceinline__ void write_rows() const {
    const int quarter = Warp::lane() % 4;
    prim::softmax_state mine;
    // The four lanes of a quad know the same rows: each finishes one of them.
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = warp_.state_of(m, half);
        const bool own = quarter % (2 * row_tiles) == 2 * m + half;
        mine.maximum = own ? state.maximum : mine.maximum;
        mine.denominator = own ? state.denominator : mine.denominator;
      }
    }
    const int own_row = Warp::row_in_block(static_cast<int>(threadIdx.x),
                                           quarter % (2 * row_tiles) / 2, quarter % 2);
    float own_scale = 0.0f;
    if (own_row < known_.range.visible) {
      const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + own_row);
      const prim::softmax_result result = finished_sums(args_, row.head, mine);
      own_scale = result.scale;
      if (quarter < 2 * row_tiles) report(args_.call, known_.range.seq, row, result);
    }
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale =
            __shfl_sync(prim::cuda::all_lanes, own_scale, (Warp::lane() & ~3) | (2 * m + half));
        const int r = Warp::row_in_block(static_cast<int>(threadIdx.x), m, half);
#pragma unroll
        for (int d = 0; d < Traits::v_tiles; ++d) {
          gather_pair(static_cast<unsigned>(r), d, warp_.sums(m, d).at[2 * half] * scale,
                      warp_.sums(m, d).at[2 * half + 1] * scale);
        }
      }
    }
    __syncwarp();
    constexpr int lanes = Traits::out_tile::chunks >= 16 ? 16 : 8;
    const auto lane = static_cast<unsigned>(Warp::lane());
    const int first = Warp::first_of_warp() + static_cast<int>(lane / lanes);
    if (args_.group.value == 1 && args_.aligned_out && Traits::aligned) {
      const unsigned chunks = static_cast<unsigned>(Traits::v_units(args_.call)) / 8;
      auto* out = out_row(known_.range.first_row + first, known_.range.kv_head);
      const int left = known_.range.visible - first;
#pragma unroll 4
      for (int r = 0; r < Traits::rows_of_warp; r += 32 / lanes) {
#pragma unroll
        for (unsigned at = 0; at < Traits::out_tile::chunks; at += lanes) {
          const unsigned chunk = at + lane % lanes;
          if (Traits::out_tile::chunks % lanes != 0 && chunk >= Traits::out_tile::chunks) continue;
          std::uint32_t four[4];
          prim::cuda::load_shared_16(
              four, q_tile_ + Traits::out_tile::offset(static_cast<unsigned>(first + r), chunk));
          if (r < left && chunk < chunks) {
            *reinterpret_cast<uint4*>(out + chunk * 8) =
                make_uint4(four[0], four[1], four[2], four[3]);
          }
        }
        out += 32 / lanes * Traits::units * args_.call.out_strides.row;
      }
      return;
    }
#pragma unroll 1
    for (int r = first; r < Warp::first_of_warp() + Traits::rows_of_warp; r += 32 / lanes) {
      if (r >= known_.range.visible) break;
      const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + r);
      write_row<typename Traits::out_tile>(q_tile_, r, out_row(row.query, row.head),
                                           Traits::units * args_.call.v_head_dim, args_.aligned_out,
                                           static_cast<int>(lane % lanes), lanes);
    }
  }

  /// Writes sums, maxima and denominators of one split to the workspace.
  __device__ __forceinline__ void write_split(int split) const {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = warp_.state_of(m, half);
        const int r = Warp::row_in_block(static_cast<int>(threadIdx.x), m, half);
        if (r >= known_.range.visible) continue;
        const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + r);
        const std::int64_t at = flat_row(args_.call, known_.range.seq, row) * args_.splits + split;
        if (Warp::lane() % 4 == 0) {
          args_.states[2 * at] = state.maximum;
          args_.states[2 * at + 1] = state.denominator;
        }
        float* sums = args_.sums + at * args_.v_stride + Warp::lane() % 4 * 2;
#pragma unroll
        for (int d = 0; d < Traits::v_tiles; ++d) {
          if (d * 8 < args_.v_stride) {
            *reinterpret_cast<float2*>(sums + d * 8) =
                make_float2(warp_.sums(m, d).at[2 * half], warp_.sums(m, d).at[2 * half + 1]);
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ std::uint16_t* out_row(int query, int head) const {
    return reinterpret_cast<std::uint16_t*>(
        token_row<typename Traits::stored>(args_.call.out, args_.call.out_strides, known_.range.seq,
                                           known_.range.seq.q_begin + query, head));
  }

  /// Elements 8 d + 2t and 8 d + 2t + 1 of a row of `out_tile`.
  __device__ __forceinline__ void gather_pair(unsigned row, int d, float low, float high) const {
    using tile = typename Traits::out_tile;
    const auto column = static_cast<std::uint32_t>(d);
    const auto t = static_cast<std::uint32_t>(Warp::lane() % 4);
    if constexpr (Traits::splits) {
      const std::uint32_t to = q_tile_ + tile::offset(row, t / 2) + t % 2 * 8;
      prim::cuda::store_shared_8((to ^ (column % 4 * 32)) + column / 4 * 128, __float_as_uint(low),
                                 __float_as_uint(high));
    } else {
      const std::uint32_t to = q_tile_ + tile::offset(row, 0) + t * 4;
      prim::cuda::store_shared_4((to ^ (column % 8 * 16)) + column / 8 * 128,
                                 prim::cuda::half_words<typename Traits::element>::pack(low, high));
    }
  }

  const launch_args& args_;
  const typename Warp::state& known_;
  const Warp& warp_;
  std::uint32_t q_tile_;
};

}  // namespace tessera::kernels::attention::sm80
