// The end of a piece of a tile by mma.sync: sums become results, or are left for the blocks that
// end last of those that share the tile.
#pragma once

#include <cstdint>

#include <tessera/kernels/quantized/sm90/streamed_shares.hpp>
#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/cluster_words.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::quantized::sm90 {

/// The results of a lane: of outputs from `output` on, and of rows t of a quad.
template <class Shape>
class few_results {
  using shape = Shape;
  using memory = typename shape::shared_memory;
  static constexpr int tiles = shape::tiles, parts = shape::box::tiles, spans = shape::box::spans;
  static constexpr int barrier = 1;       ///< of the warps that multiply
  static constexpr int left_barrier = 2;  ///< and of the one that sums up
  static constexpr int together = 4;      ///< sums of a load

 public:
  using sums = float[tiles][parts][4];

  __device__ __forceinline__ few_results(const streamed_args& args, memory& shared, unsigned t,
                                         unsigned output)
      : args_(args), shared_(shared), t_(t), output_(output) {}

  /// The end of a piece. `last`: of the block; else the warp that sums up goes on with it.
  __device__ __forceinline__ void finish(const streamed_piece& piece, bool last,
                                         const sums& of) const {
    if (piece.count == args_.stages_of_tile) {
      each(of, [&](int row, int output, float sum) { put(piece, row, output, sum); });
      return;
    }
    if (args_.paired > 0) return finish_half(piece, of);
    float* const own = part_of(static_cast<int>(blockIdx.x), piece.first == 0);
    each(of,
         [&](int row, int output, float sum) { __stcg(own + row * shape::outputs + output, sum); });
    if (!last) {
      prim::cuda::arrive_for_threads(left_barrier, shape::multiplying + prim::cuda::warp_size);
      return;
    }
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    if (threadIdx.x == 0) shared_.parts = arrive(piece);
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    sum_up<shape::multiplying>(piece, shared_.parts, static_cast<int>(threadIdx.x));
  }

  /// The warp that sums up what the others have left before their last piece, while they go on.
  __device__ __forceinline__ void sum_up_before_last() const {
    streamed_walk<shape> walk(args_);
    streamed_piece piece;
    while (walk.next(piece)) {
      if (piece.count == args_.stages_of_tile || walk.ended()) continue;
      prim::cuda::wait_for_threads(left_barrier, shape::multiplying + prim::cuda::warp_size);
      const auto lane = static_cast<int>(threadIdx.x % prim::cuda::warp_size);
      unsigned parts = 0;
      if (lane == 0) parts = arrive(piece);
      parts = __shfl_sync(prim::cuda::all_lanes, parts, 0);
      sum_up<prim::cuda::warp_size>(piece, parts, lane);
    }
  }

 private:
  /// The end of a tile of a pair: each block sums half of the rows, of which the other one has its
  /// sums where codes lay.
  __device__ __forceinline__ void finish_half(const streamed_piece& piece, const sums& of) const {
    static_assert(shape::rows * shape::outputs * 4 <= shape::code_bytes);
    const std::uint32_t left = prim::cuda::shared_address(shared_.codes);
    const auto place = [left](int row, int output) {
      return left + static_cast<std::uint32_t>(row * shape::outputs + output) * 4;
    };
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    each(of, [&](int row, int output, float sum) {
      prim::cuda::store_shared_4(place(row, output), __float_as_uint(sum));
    });
    __syncwarp();
    prim::cuda::wait_for_cluster();
    const auto half = static_cast<int>(prim::cuda::block_in_cluster());
    constexpr int of_row = shape::outputs / together;
    constexpr int of_thread =
        (shape::rows * of_row / 2 + shape::multiplying - 1) / shape::multiplying;
    const int fours = min(shape::rows, args_.batch) * of_row, end = (half + 1) * fours / 2;
    const int begin = half * fours / 2 + static_cast<int>(threadIdx.x);
    float4 both[of_thread];
#pragma unroll
    for (int i = 0; i < of_thread; ++i) {
      const int at = min(begin + i * shape::multiplying, end - 1);
      const std::uint32_t from = place(at / of_row, at % of_row * together);
      const float4 first = prim::cuda::load_four_of_block(from, 0);
      const float4 second = prim::cuda::load_four_of_block(from, 1);
      both[i] = make_float4(first.x + second.x, first.y + second.y, first.z + second.z,
                            first.w + second.w);
    }
    __syncwarp();
    prim::cuda::arrive_at_cluster();
#pragma unroll
    for (int i = 0; i < of_thread; ++i) {
      const int at = begin + i * shape::multiplying;
      if (at < end) put_four(piece, at / of_row, at % of_row * together, both[i]);
    }
    __syncwarp();
    prim::cuda::wait_for_arrivals();
  }

  /// Calls body(row, output of the tile, sum) for what the lane has of the result.
  template <class Body>
  __device__ __forceinline__ void each(const sums& of, const Body& body) const {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float sum = of[tile][part][i];
          if constexpr (spans > 1) {
            sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 1);
            sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 2);
          }
          const int row = spans > 1 ? i % 2 : part * 8 + static_cast<int>(t_) * 2 + i % 2;
          if (spans == 1 || t_ == 0) {
            body(row, static_cast<int>(output_) + tile * 16 + i / 2 * 8, sum);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void put(const streamed_piece& piece, int row, int output,
                                      float sum) const {
    const std::int64_t at = std::int64_t{piece.first_output} + output;
    if (row >= args_.batch || at >= args_.outputs) return;
    const float of_tensor = args_.tensor_scale != nullptr ? *args_.tensor_scale : 1.0f;
    prim::cuda::with_elements(args_.out.data, args_.out.type, [&]<class To>(To* to) {
      to[row * args_.out.row + at] = prim::cuda::nearest<To>(sum * of_tensor);
    });
  }

  __device__ __forceinline__ void put_four(const streamed_piece& piece, int row, int output,
                                           const float4& sums) const {
    put(piece, row, output, sums.x);
    put(piece, row, output + 1, sums.y);
    put(piece, row, output + 2, sums.z);
    put(piece, row, output + 3, sums.w);
  }

  /// What a block has left of a tile. `begins`: with the first stage of the tile.
  __device__ __forceinline__ float* part_of(int block, bool begins) const {
    return sums_left_by(args_, block, begins, shape::outputs * shape::rows);
  }
  __device__ __forceinline__ tile_share share_of(const streamed_piece& piece) const {
    return {args_, piece.shared_tile, min(shape::rows, args_.batch)};
  }
  __device__ __forceinline__ unsigned arrive(const streamed_piece& piece) const {
    return share_of(piece).arrive(args_, piece.shared_tile);
  }

  /// Sums what the blocks of a tile have left, in their order: those that end last have a part of
  /// the sums each.
  template <int Threads>
  __device__ __forceinline__ void sum_up(const streamed_piece& piece, unsigned own,
                                         int thread) const {
    const tile_share share = share_of(piece);
    const int rows = min(shape::rows, args_.batch);
    constexpr int of_row = shape::outputs / together;
#pragma unroll 1
    for (int part = 0; part < share.parts; ++part) {
      if ((own >> part & 1) == 0) continue;
      const int end = (part + 1) * rows / share.parts * of_row;
#pragma unroll 2
      for (int i = part * rows / share.parts * of_row + thread; i < end; i += Threads) {
        const float4 sum = share.sum_of_left([&](int block) {
          return reinterpret_cast<const float4*>(part_of(block, block == share.first)) + i;
        });
        put_four(piece, i / of_row, i % of_row * together, sum);
      }
    }
  }

  const streamed_args& args_;
  memory& shared_;
  unsigned t_, output_;
};

}  // namespace tessera::kernels::quantized::sm90
