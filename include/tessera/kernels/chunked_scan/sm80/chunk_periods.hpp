// States at the ends of periods of tokens: those of the way forward are kept, rounded to bf16, for
// their products with gradients of states on the way back.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// The number of a sequence's first period.
__device__ __forceinline__ std::int64_t first_period_of(const chunk_periods& periods,
                                                        const sequence& all) {
  return all.entry * periods.entry +
         (periods.entry == 0 ? all.begin / chunk_periods::tokens + all.number : 0);
}

/// What a thread has of the transposed state at the end of the period that ends behind `tokens`
/// tokens of a sequence.
template <class Shape>
class period_place {
  using words = prim::cuda::half_words<bf16>;
  static constexpr int quads = Shape::tiles * Shape::keys / 16;

 public:
  __device__ __forceinline__ period_place(const chunk_launch<true>& launch, const sequence& all,
                                          std::int64_t head, int tile, std::int64_t tokens)
      : first_column_(tile * Shape::columns +
                      static_cast<int>(threadIdx.x) / 32 * (Shape::tiles * 16)) {
    const std::int64_t period = first_period_of(launch.periods, all) +
                                (tokens + chunk_periods::tokens - 1) / chunk_periods::tokens - 1;
    const std::int64_t of_head = period * launch.call.heads + head;
    states_ = launch.periods.states +
              (of_head * launch.tiles + tile) * (quads * Shape::threads) + threadIdx.x;
    products_ = launch.periods.products + of_head * launch.call.keys;
  }

  template <class State>
  __device__ __forceinline__ void keep(const State& state) const {
#pragma unroll
    for (int i = 0; i < quads; ++i) {
      const auto& low = state.at[2 * i / (Shape::keys / 8)][2 * i % (Shape::keys / 8)].at;
      const auto& high = state.at[2 * i / (Shape::keys / 8)][2 * i % (Shape::keys / 8) + 1].at;
      states_[i * Shape::threads] =
          make_uint4(words::pack(low[0], low[1]), words::pack(low[2], low[3]),
                     words::pack(high[0], high[1]), words::pack(high[2], high[3]));
    }
  }

  /// Their products with the gradients in `state`, summed over its channels: the values.
  template <class State>
  __device__ __forceinline__ void multiply(const State& state, const chunk_scan& scan) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int of_tile = Shape::keys / 16;
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile) {
      float sum[2] = {};
#pragma unroll
      for (int i = 0; i < of_tile; ++i) {
        const uint4 kept = states_[(tile * of_tile + i) * Shape::threads];
        const std::uint32_t word[4] = {kept.x, kept.y, kept.z, kept.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const auto& part = state.at[tile][2 * i + j / 2].at;
          sum[j % 2] = fmaf(words::unpack(static_cast<std::uint16_t>(word[j])),
                            part[j % 2 * 2], sum[j % 2]);
          sum[j % 2] = fmaf(words::unpack(static_cast<std::uint16_t>(word[j] >> 16)),
                            part[j % 2 * 2 + 1], sum[j % 2]);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float whole = scan.final_scale * prim::cuda::sum_of_quad(sum[j]);
        const int column = first_column_ + tile * 16 + j * 8 + lane / 4;
        if (lane % 4 == 0 && column < scan.values) products_[column] = whole;
      }
    }
  }

 private:
  int first_column_;
  uint4* states_;
  float* products_;
};

}  // namespace tessera::kernels::chunked_scan::sm80
