// What a block leaves whose heads are the columns of products (group_tile.hpp): finished rows, or
// partial results.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/epilogue.hpp>
#include <tessera/kernels/attention/sm80/group_tile.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Maximum and denominator of head `e` of a lane in natural units.
template <class Traits, class State>
__device__ __forceinline__ prim::softmax_state state_of(const group_tile<Traits, State>& warp,
                                                        int e) {
  const float row_max = warp.row_max[e];
  return {row_max == nothing_seen<Traits> ? prim::minus_infinity : row_max * ln_2,
          sum_of_heads(warp.row_sum[e])};
}

/// What a block leaves, as `epilogue`.
template <class Traits, class State>
class group_epilogue {
  using warp_type = group_tile<Traits, State>;

 public:
  __device__ __forceinline__ group_epilogue(const warp_type& warp, std::uint32_t q_tile)
      : args_(warp.args), block_(warp.block), warp_(warp), q_tile_(q_tile) {}

  __device__ __forceinline__ void write_rows() const {
    using tile = typename Traits::out_tile;
    using words = prim::cuda::half_words<typename Traits::element>;
    const int lane = warp_type::lane();
    const int t = lane % 4, g = lane / 4;
    const prim::softmax_state states[2] = {state_of(warp_, 0), state_of(warp_, 1)};
    const int own_row = 2 * t + g % 2;  // of the lanes with two heads each finishes one
    float own_scale = 0.0f;
    if (own_row < block_.work.used) {
      const query_row row = row_at(own_row);
      const prim::softmax_result result = finished_sums<takes_codes(Traits::config)>(
          args_, row.head, g % 2 == 0 ? states[0] : states[1]);
      own_scale = result.scale;
      if (g < 2) report(args_.call, block_.work.seq, row, result);
    }
    const float scales[2] = {__shfl_sync(prim::cuda::all_lanes, own_scale, t),
                             __shfl_sync(prim::cuda::all_lanes, own_scale, t + 4)};
    // Two neighbours of head g: rows 2t and 2t + 1 of products, which are columns side by side, or
    // of 8 bits a column of each of two products.
    const auto word_of = [&](int d, int half) {
      const float(&sums)[4] = warp_.out[d].at;
      return prim::cuda::transposed_tile(
          words::pack(sums[2 * half] * scales[0], sums[2 * half + 1] * scales[1]));
    };
    const auto for_each_word = [&](const auto& store) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Traits::codes) {
#pragma unroll
          for (int d = 0; d < Traits::v_groups; d += 2) {
            const std::uint32_t even = word_of(d, half), odd = word_of(d + 1, half);
            const int column = 16 * d + 16 * half + 4 * t;
            store(column, __byte_perm(even, odd, 0x5410u));
            store(column + 2, __byte_perm(even, odd, 0x7632u));
          }
        } else {
#pragma unroll
          for (int d = 0; d < Traits::v_groups; ++d) {
            store(16 * d + 8 * half + 2 * t, word_of(d, half));
          }
        }
      }
    };
    // Straight to where they belong, or gathered first.
    if (args_.aligned_out) {
      const query_row row = row_at(g);
      std::uint16_t* const out = output_row<Traits>(args_, block_, row.query, row.head);
      for_each_word([&](int column, std::uint32_t word) {
        if (g < block_.work.used) *reinterpret_cast<std::uint32_t*>(out + column) = word;
      });
      return;
    }
    for_each_word([&](int column, std::uint32_t word) {
      const auto at = static_cast<std::uint32_t>(column);
      prim::cuda::store_shared_4(
          q_tile_ + tile::offset(static_cast<std::uint32_t>(g), at / 8) + at % 8 * 2, word);
    });
    __syncwarp();
    write_gathered_rows<Traits>(args_, block_, q_tile_, 0, block_.work.used);
  }

  template <class PlaceOf>
  __device__ __forceinline__ void write_partials(const PlaceOf& place_of) const {
    const int g = warp_type::lane() / 4;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const prim::softmax_state state = state_of(warp_, e);
      const int r = warp_type::lane() % 4 * 2 + e;
      if (r >= block_.work.used) continue;
      const std::int64_t at = place_of(r, row_at(r));
      if (g == 0) {
        args_.partial_stats[2 * at] = maximum_left(state);
        args_.partial_stats[2 * at + 1] = state.denominator;
      }
      float* const out = args_.partial_out + at * args_.partial_stride;
#pragma unroll
      for (int d = 0; d < Traits::v_groups; ++d) {
        out[column_of_row(d, g)] = warp_.out[d].at[e];
        out[column_of_row(d, g + 8)] = warp_.out[d].at[2 + e];
      }
    }
  }

 private:
  /// Of values, what row `row` of product `d` is a sum of.
  static __device__ __forceinline__ int column_of_row(int d, int row) {
    return Traits::codes ? d / 2 * 32 + 2 * row + d % 2 : 16 * d + row;
  }
  /// The only query, and head `r` of the group.
  __device__ __forceinline__ query_row row_at(int r) const {
    return {0, block_.work.kv_head * static_cast<int>(args_.group.value) + r};
  }

  const launch_args& args_;
  const State& block_;
  const warp_type& warp_;
  std::uint32_t q_tile_;
};

}  // namespace tessera::kernels::attention::sm80
