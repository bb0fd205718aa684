// The end of a piece of a tile by wgmma: sums become results, or are left for the block that ends
// last of those that share the tile.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/kernels/quantized/sm90/streamed_shares.hpp>
#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/cluster_words.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_words.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

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
  /// Of tall tiles two are stored together, outputs of 16 rows, and sums of several blocks come
  /// many at a time; of others there are too few of them.
  static constexpr bool tall = shape::lines == 1;
  static constexpr int fours_of_unit = tall ? 2 : 1;
  static constexpr int units = fours / fours_of_unit;
  using unit_sums = float[fours_of_unit][4];
  static constexpr int units_together = tall ? 8 : 1;   ///< that are summed up
  static constexpr int blocks_together = tall ? 1 : 4;  ///< whose sums come

 public:
  using sums = float[tiles][Rows / 2];

  __device__ __forceinline__ streamed_results(const streamed_args& args, memory& shared, unsigned t,
                                              unsigned output)
      : args_(args), shared_(shared), t_(t), output_(output) {}

  /// The end of a piece.
  __device__ __forceinline__ void finish(const streamed_piece& piece, sums& of) const {
    const result_place to = place_of(piece);
    const bool whole = piece.count == args_.stages_of_tile || piece.count == 0;
    if (!whole && args_.paired == 0) return leave_sums(piece, to, of);
    int first = 0, end = units;
    if (!whole) {
      const bool second = prim::cuda::block_in_cluster() != 0;
      second ? exchange_halves<1>(of) : exchange_halves<0>(of);
      (second ? first : end) = units / 2;
    }
    store_units<units>(to, 0, first, end, [&](int i) { return four_of(of, i); });
    if (!whole) {
      __syncwarp();
      prim::cuda::wait_for_arrivals();
    }
  }

 private:
  /// Where the results of a piece lie, and what they are multiplied by.
  struct result_place {
    int first_row, end_row;
    std::int64_t output;
    float scale;
    bool by_eight;  ///< outputs of a row are stored eight at a time
  };

  static __device__ __forceinline__ float* four_of(sums& of, int number) {
    return of[number / (Rows / 8)] + number % (Rows / 8) * 4;
  }

  /// Leaves sums for the blocks that end last of those that share the tile, or is one of them.
  __device__ __forceinline__ void leave_sums(const streamed_piece& piece, const result_place& to,
                                             sums& of) const {
    float4* const own = part_of(static_cast<int>(blockIdx.x), piece.first == 0);
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      const float* const sum = four_of(of, i);
      __stcg(own + i * shape::multiplying, make_float4(sum[0], sum[1], sum[2], sum[3]));
    }
    sum_up(piece, to);
  }

  /// Of a tile of a pair the block has half of the units, adds the other block's sums of them, and
  /// gives it its sums of the others by way of the memory of stages, which are behind both. It has
  /// arrived at the cluster for the last time then.
  template <int Half>
  __device__ __forceinline__ void exchange_halves(sums& of) const {
    constexpr int half = fours / 2;
    static_assert(units % 2 == 0 &&
                  half * shape::multiplying * 16 <= shape::stages * shape::x_bytes);
    const std::uint32_t given = prim::cuda::shared_address(shared_.x) + threadIdx.x * 16;
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float* const sum = four_of(of, (1 - Half) * half + i);
      const std::uint32_t words[4] = {__float_as_uint(sum[0]), __float_as_uint(sum[1]),
                                      __float_as_uint(sum[2]), __float_as_uint(sum[3])};
      prim::cuda::store_shared_16(given + static_cast<unsigned>(i * shape::multiplying * 16),
                                  words);
    }
    prim::cuda::wait_for_cluster();
    // All of them before the first store, so that they come together.
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float4 other = prim::cuda::load_four_of_block(
          given + static_cast<unsigned>(i * shape::multiplying * 16), 1 - Half);
      float* const own = four_of(of, Half * half + i);
      own[0] += other.x, own[1] += other.y, own[2] += other.z, own[3] += other.w;
    }
    __syncwarp();
    prim::cuda::arrive_at_cluster();
  }

  __device__ __forceinline__ result_place place_of(const streamed_piece& piece) const {
    const streamed_rows rows(args_, piece.batch_tile, Rows);
    const bool scaled = args_.tensor_scale != nullptr && rows.matrix >= 0;
    const bool aligned = reinterpret_cast<std::uintptr_t>(args_.out.data) % 16 == 0 &&
                         ((args_.out.row | args_.outputs) % 8) == 0;
    return {rows.first, rows.end, std::int64_t{piece.first_output} + output_,
            scaled ? args_.tensor_scale[rows.matrix] : 1.0f,
            tall && aligned && size_of(args_.out.type) == 2};
  }

  /// Stores units from `first` on, before `end`; `sum_of(i)` are the four sums of number i of the
  /// tile, of which a thread has two outputs, 8 apart, and two rows.
  template <int Units, class SumOf>
  __device__ __forceinline__ void store_units(const result_place& place, int from, int first,
                                              int end, const SumOf& sum_of) const {
    if constexpr (tall) {
      if (place.by_eight) {
#pragma unroll
        for (int unit = 0; unit < Units; ++unit) {
          if (from + unit < first || from + unit >= end) continue;
          store_by_eight(place, row_of(place, (from + unit) * 2),
                         output_of(place, (from + unit) * 2), sum_of(unit * 2),
                         sum_of(unit * 2 + 1));
        }
        return;
      }
    }
    prim::cuda::with_elements(args_.out.data, args_.out.type, [&]<class To>(To* to) {
#pragma unroll
      for (int i = 0; i < Units * fours_of_unit; ++i) {
        const int four = from * fours_of_unit + i;
        if (four / fours_of_unit < first || four / fours_of_unit >= end) continue;
        store_four(to, place, row_of(place, four) + static_cast<int>(t_) * 2,
                   output_of(place, four), sum_of(i));
      }
    });
  }
  static __device__ __forceinline__ int row_of(const result_place& place, int four) {
    return place.first_row + four % (Rows / 8) * 8;
  }
  static __device__ __forceinline__ std::int64_t output_of(const result_place& place, int four) {
    return place.output + four / (Rows / 8) * 64;
  }
  template <class To>
  __device__ __forceinline__ void store_four(To* to, const result_place& place, int row,
                                             std::int64_t output, const float* four) const {
    To* const first = to + row * args_.out.row + output;
    const bool low = output < args_.outputs, high = output + 8 < args_.outputs;
    if (row < place.end_row) {
      if (low) first[0] = prim::cuda::nearest<To>(four[0] * place.scale);
      if (high) first[8] = prim::cuda::nearest<To>(four[2] * place.scale);
    }
    if (row + 1 < place.end_row) {
      if (low) first[args_.out.row] = prim::cuda::nearest<To>(four[1] * place.scale);
      if (high) first[args_.out.row + 8] = prim::cuda::nearest<To>(four[3] * place.scale);
    }
  }
  /// Of 16 rows: a tile of 8 x 8 that is turned over has eight outputs in the lanes of a quad,
  /// which exchange them so that each stores 16 bytes of a row.
  __device__ __forceinline__ void store_by_eight(const result_place& place, int first_row,
                                                 std::int64_t output, const float* upper,
                                                 const float* lower) const {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const two = (i < 2 ? upper : lower) + i % 2 * 2;
      const float a = two[0] * place.scale, b = two[1] * place.scale;
      word[i] = prim::cuda::transposed_tile(args_.out.type == dtype::bf16
                                                ? prim::cuda::half_words<bf16>::pack(a, b)
                                                : prim::cuda::half_words<f16>::pack(a, b));
    }
    const uint4 eight = grouped_matmul::sm90::neighbours_of_quad(word);
    const auto in_tile = static_cast<int>(threadIdx.x) % prim::cuda::warp_size / 4;
    const int row = first_row + static_cast<int>(t_) / 2 * 8 + in_tile;
    const std::int64_t first = output - in_tile + t_ % 2 * 8;
    if (row >= place.end_row || first >= args_.outputs) return;
    *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(args_.out.data) + row * args_.out.row +
                              first) = eight;
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
    const tile_share share(args_, piece.shared_tile, units);
    const int parts = share.parts;
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    if (threadIdx.x == 0) shared_.parts = share.arrive(args_, piece.shared_tile);
    prim::cuda::wait_for_threads(barrier, shape::multiplying);
    const unsigned own = shared_.parts;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      if ((own >> part & 1) == 0) continue;
      const int end = (part + 1) * units / parts;
#pragma unroll 1
      for (int unit = part * units / parts; unit < end; unit += units_together) {
        sum_units(share, to, unit, end);
      }
    }
  }
  /// Units from one on, which come together: a load takes as long as all of them.
  __device__ __forceinline__ void sum_units(const tile_share& share, const result_place& to,
                                            int first, int end) const {
    unit_sums sums[units_together] = {};
#pragma unroll blocks_together
    for (int block = share.first; block <= share.last; ++block) {
      const float4* const left = part_of(block, block == share.first);
      float4 four[units_together][fours_of_unit];
#pragma unroll
      for (int i = 0; i < units_together * fours_of_unit; ++i) {
        const int at = min(first * fours_of_unit + i, end * fours_of_unit - 1);
        four[i / fours_of_unit][i % fours_of_unit] = __ldcg(left + at * shape::multiplying);
      }
#pragma unroll
      for (int i = 0; i < units_together * fours_of_unit; ++i) {
        const float4& own = four[i / fours_of_unit][i % fours_of_unit];
        float(&sum)[4] = sums[i / fours_of_unit][i % fours_of_unit];
        sum[0] += own.x, sum[1] += own.y, sum[2] += own.z, sum[3] += own.w;
      }
    }
    store_units<units_together>(to, first, first, end,
                                [&](int i) { return sums[i / fours_of_unit][i % fours_of_unit]; });
  }

  const streamed_args& args_;
  memory& shared_;
  unsigned t_, output_;
};

}  // namespace tessera::kernels::quantized::sm90
