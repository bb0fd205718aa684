// The end of a piece of a tile by wgmma: sums become results, or are left for the block that ends
// last of those that share the tile.
#pragma once

#include <cstdint>

#include <tessera/kernels/quantized/sm90/streamed_shares.hpp>
#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::quantized::sm90 {

/// The results of a thread of a warpgroup, of outputs from `output` on and of rows t of a quad.
template <class Shape>
class streamed_results {
  using shape = Shape;
  using memory = typename shape::shared_memory;
  static constexpr int Rows = shape::rows;
  static constexpr int tiles = shape::tiles;
  static constexpr int barrier = 1;               ///< of the warpgroups that multiply
  static constexpr int fours = tiles * Rows / 8;  ///< sums of a thread, by four

 public:
  using sums = float[tiles][Rows / 2];

  __device__ __forceinline__ streamed_results(const streamed_args& args, memory& shared, unsigned t,
                                              unsigned output)
      : args_(args), shared_(shared), t_(t), output_(output) {}

  /// The end of a piece.
  __device__ __forceinline__ void finish(const streamed_piece& piece, sums& of) const {
    const result_place to = place_of(piece);
    if (piece.count == args_.stages_of_tile || piece.count == 0) {
#pragma unroll
      for (int i = 0; i < fours; ++i) {
        float* const four = of[i / (Rows / 8)] + i % (Rows / 8) * 4;
        store(to, i, make_float4(four[0], four[1], four[2], four[3]));
      }
      return;
    }
    float4* const own = part_of(static_cast<int>(blockIdx.x), piece.first == 0);
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      float* const four = of[i / (Rows / 8)] + i % (Rows / 8) * 4;
      __stcg(own + i * shape::multiplying, make_float4(four[0], four[1], four[2], four[3]));
    }
    sum_up(piece, to);
  }

 private:
  /// Where the results of a piece lie, and what they are multiplied by.
  struct result_place {
    int first_row, end_row;
    std::int64_t output;
    float scale;
  };
  __device__ __forceinline__ result_place place_of(const streamed_piece& piece) const {
    const streamed_rows rows(args_, piece.batch_tile, Rows);
    const bool scaled = args_.tensor_scale != nullptr && rows.matrix >= 0;
    return {rows.first + static_cast<int>(t_) * 2, rows.end,
            std::int64_t{piece.first_output} + output_,
            scaled ? args_.tensor_scale[rows.matrix] : 1.0f};
  }

  /// Four sums of two outputs, 8 apart, and of two rows.
  __device__ __forceinline__ void store(const result_place& place, int i, float4 four) const {
    const int row = place.first_row + i % (Rows / 8) * 8;
    const std::int64_t output = place.output + i / (Rows / 8) * 64;
    prim::cuda::with_elements(args_.out.data, args_.out.type, [&]<class To>(To* to) {
      To* const first = to + row * args_.out.row + output;
      const bool low = output < args_.outputs, high = output + 8 < args_.outputs;
      if (row < place.end_row) {
        if (low) first[0] = prim::nearest<To>(four.x * place.scale);
        if (high) first[8] = prim::nearest<To>(four.z * place.scale);
      }
      if (row + 1 < place.end_row) {
        if (low) first[args_.out.row] = prim::nearest<To>(four.y * place.scale);
        if (high) first[args_.out.row + 8] = prim::nearest<To>(four.w * place.scale);
      }
    });
  }

  /// The thread's sums of a tile that a block has left: every so many fours. `begins`: with the
  /// first stage of the tile.
  __device__ __forceinline__ float4* part_of(int block, bool begins) const {
    constexpr int of_tile = shape::outputs * Rows;
    return reinterpret_cast<float4*>(sums_left_by(args_, block, begins, of_tile)) + threadIdx.x;
  }

  /// Sums what the blocks of a tile have left, in their order: those that end last have a part of
  /// the sums each.
  __device__ __forceinline__ void sum_up(const streamed_piece& piece,
                                         const result_place& to) const {
    const tile_share share(args_, piece.shared_tile, fours);
    const int parts = share.parts;
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    if (threadIdx.x == 0) shared_.parts = share.arrive(args_, piece.shared_tile);
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    const unsigned own = shared_.parts;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      if ((own >> part & 1) == 0) continue;
#pragma unroll 1
      for (int i = part * fours / parts; i < (part + 1) * fours / parts; ++i) {
        const float4 sum = share.sum_of_left([&](int block) {
          return part_of(block, block == share.first) + i * shape::multiplying;
        });
        store(to, i, sum);
      }
    }
  }

  const streamed_args& args_;
  memory& shared_;
  unsigned t_, output_;
};

}  // namespace tessera::kernels::quantized::sm90
