// The epilogue of a thread block: finished rows, or the partial results of a split, to global
// memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/softmax.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

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
  result.scale *= call.out_factor;
  return result;
}

/// The same for a state whose weights are 2^headroom larger than its maximum says. Values of 8 bits
/// may have a scale for each of their heads.
template <bool TakesCodes>
__device__ __forceinline__ prim::softmax_result finished_sums(const launch_args& args, int head,
                                                              prim::softmax_state state) {
  const float smaller = prim::cuda::exp2_fast(-args.headroom);
  state.maximum += args.headroom * ln_2;
  state.denominator *= smaller;
  prim::softmax_result result = finished(args.call, head, state);
  result.scale *= smaller;
  if constexpr (TakesCodes) {
    if (args.call.v_scales != nullptr) {
      result.scale *= args.call.v_scales[args.group.quotient(head)];
    }
  }
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

/// Lanes that write a row together.
template <class Tile>
inline constexpr int lanes_of_row = Tile::chunks >= 16 ? 16 : 8;

/// The output of a query and head of a block, in units of 16 bits.
template <class Traits, class State>
__device__ __forceinline__ std::uint16_t* output_row(const launch_args& args, const State& block,
                                                     int query, int head) {
  return reinterpret_cast<std::uint16_t*>(token_row<typename Traits::stored>(
      args.call.out, args.call.out_strides, block.work.seq, block.work.seq.q_begin + query, head));
}

/// Writes the used rows of [first, end) that a warp has gathered in shared memory, each where the
/// output of its query and head is.
template <class Traits, class State>
__device__ __forceinline__ void write_gathered_rows(const launch_args& args, const State& block,
                                                    std::uint32_t tile, int first, int end) {
  constexpr int lanes = lanes_of_row<typename Traits::out_tile>;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
#pragma unroll 1
  for (int r = first + lane / lanes; r < end; r += prim::cuda::warp_size / lanes) {
    if (r >= block.work.used) break;
    const query_row row = query_at(args, block, r);
    write_row<typename Traits::out_tile>(
        tile, r, output_row<Traits>(args, block, row.query, row.head),
        Traits::units * args.call.v_head_dim, args.aligned_out, lane % lanes, lanes);
  }
}

/// A block that has nothing to add: rows that see no key, or are not used.
template <class Traits>
__device__ __forceinline__ void write_empty_rows(const launch_args& args, const work_tile& work,
                                                 int first) {
  const attention_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  for (int r = first + static_cast<int>(threadIdx.x) / prim::cuda::warp_size; r < work.rows;
       r += Traits::warps) {
    const query_row row = query_of(args, work.kv_head, work.first_row + r);
    auto* out = token_row<typename Traits::stored>(call.out, call.out_strides, work.seq,
                                                   work.seq.q_begin + row.query, row.head);
    for (int d = lane; d < call.v_head_dim; d += prim::cuda::warp_size) out[d] = 0;
    if (lane == 0) report(call, work.seq, row, {});
  }
}

/// What a block leaves; `q_tile` is where its queries lay in shared memory.
template <class Traits, class State>
class epilogue {
  using warp_type = warp_tile<Traits, State>;
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  __device__ __forceinline__ epilogue(const warp_type& warp, std::uint32_t q_tile)
      : args_(warp.args), block_(warp.block), warp_(warp), q_tile_(q_tile) {}

  /// Finishes the block's rows and writes them. Everyone is done with Q, which lies where they are
  /// gathered.
  __device__ __forceinline__ void write_rows() const {
    const int quarter = warp_type::lane() % 4;
    prim::softmax_state mine;
    // The four lanes of a quad know the same rows: each finishes one of them.
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = state_of(warp_, m, half);
        const bool own = quarter % (2 * row_tiles) == 2 * m + half;
        mine.maximum = own ? state.maximum : mine.maximum;
        mine.denominator = own ? state.denominator : mine.denominator;
      }
    }
    const int own_row = row_of_thread<Traits>(static_cast<int>(threadIdx.x),
                                              quarter % (2 * row_tiles) / 2, quarter % 2);
    float own_scale = 0.0f;
    if (own_row < block_.work.used) {
      const query_row row = query_at(args_, block_, own_row);
      const prim::softmax_result result =
          finished_sums<takes_codes(Traits::config)>(args_, row.head, mine);
      own_scale = result.scale;
      if (quarter < 2 * row_tiles) report(args_.call, block_.work.seq, row, result);
    }
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = __shfl_sync(prim::cuda::all_lanes, own_scale,
                                        (warp_type::lane() & ~3) | (2 * m + half));
        const int r = row_of_thread<Traits>(static_cast<int>(threadIdx.x), m, half);
#pragma unroll
        for (int d = 0; d < Traits::v_tiles; ++d) {
          const auto row = static_cast<unsigned>(r);
          if constexpr (Traits::codes) {
            if (d % 2 == 0) gather_four(row, d, four_of(m, half, d), scale);
          } else {
            gather_pair(row, d, warp_.out[m][d].at[2 * half] * scale,
                        warp_.out[m][d].at[2 * half + 1] * scale);
          }
        }
      }
    }
    __syncwarp();
    constexpr int lanes = lanes_of_row<typename Traits::out_tile>;
    const auto lane = static_cast<unsigned>(warp_type::lane());
    const int first = warp_type::first_row() + static_cast<int>(lane / lanes);
    if (args_.group.value == 1 && args_.aligned_out && Traits::aligned) {
      const unsigned chunks = static_cast<unsigned>(Traits::units * args_.call.v_head_dim) / 8;
      auto* out = out_row(block_.work.first_row + first, block_.work.kv_head);
      const int left = block_.work.used - first;
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
    write_gathered_rows<Traits>(args_, block_, q_tile_, warp_type::first_row(),
                                warp_type::first_row() + Traits::rows_of_warp);
  }

  /// Writes the partial results of one split to the workspace, where split_kv.hpp combines them;
  /// `place_of(r, row)` is the place of row r of the block.
  template <class PlaceOf>
  __device__ __forceinline__ void write_partials(const PlaceOf& place_of) const {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = state_of(warp_, m, half);
        const int r = row_of_thread<Traits>(static_cast<int>(threadIdx.x), m, half);
        if (r >= block_.work.used) continue;
        const query_row row = query_at(args_, block_, r);
        const std::int64_t at = place_of(r, row);
        if (warp_type::lane() % 4 == 0) {
          args_.partial_stats[2 * at] = maximum_left(state);
          args_.partial_stats[2 * at + 1] = state.denominator;
        }
        float* out = args_.partial_out + at * args_.partial_stride;
        if constexpr (Traits::codes) {
#pragma unroll
          for (int d = 0; d < Traits::v_tiles; d += 2) {
            *reinterpret_cast<float4*>(out + d * 8 + warp_type::lane() % 4 * 4) =
                four_of(m, half, d);
          }
          continue;
        }
        out += warp_type::lane() % 4 * 2;
#pragma unroll
        for (int d = 0; d < Traits::v_tiles; ++d) {
          if (d * 8 < args_.partial_stride) {
            *reinterpret_cast<float2*>(out + d * 8) =
                make_float2(warp_.out[m][d].at[2 * half], warp_.out[m][d].at[2 * half + 1]);
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ std::uint16_t* out_row(int query, int head) const {
    return output_row<Traits>(args_, block_, query, head);
  }

  /// Columns 8 d + 4t to 8 d + 4t + 3 of a row, d even, of sums whose values had 8 bits
  /// (operands.hpp).
  __device__ __forceinline__ float4 four_of(int m, int half, int d) const {
    const float(&even)[4] = warp_.out[m][d].at;
    const float(&odd)[4] = warp_.out[m][d + 1].at;
    return {even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]};
  }
  /// The same times the row's scale, in `out_tile`.
  __device__ __forceinline__ void gather_four(unsigned row, int d, const float4& four,
                                              float scale) const {
    using words = prim::cuda::half_words<typename Traits::element>;
    const auto t = static_cast<std::uint32_t>(warp_type::lane() % 4);
    const std::uint32_t to =
        q_tile_ + Traits::out_tile::offset(row, static_cast<std::uint32_t>(d) + t / 2) + t % 2 * 8;
    prim::cuda::store_shared_8(to, words::pack(four.x * scale, four.y * scale),
                               words::pack(four.z * scale, four.w * scale));
  }

  /// Elements 8 d + 2t and 8 d + 2t + 1 of a row of `out_tile`.
  __device__ __forceinline__ void gather_pair(unsigned row, int d, float low, float high) const {
    using tile = typename Traits::out_tile;
    const auto column = static_cast<std::uint32_t>(d);
    const auto t = static_cast<std::uint32_t>(warp_type::lane() % 4);
    if constexpr (Traits::use_3xtf32) {
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
  const State& block_;
  const warp_type& warp_;
  std::uint32_t q_tile_;
};

}  // namespace tessera::kernels::attention::sm80
