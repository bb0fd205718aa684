// What a warp does with 16 tokens and 16 channels of its sums on the way back with decays of
// channels: sums of rows over all warps, factors of numbers, and gradients of rows to memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_products.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gate_gradients.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

template <class Element, class Shape>
class channel_blocks {
 protected:
  using memory = channel_gradient_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using products_type = channel_products<Element, Shape>;
  static constexpr int threads = 2 * Shape::threads;

  __device__ __forceinline__ channel_blocks(const chunk_back_args& args, memory& shared,
                                            const sequence& all, std::int64_t head)
      : args_(args),
        call_(args.call),
        shared_(shared),
        all_(all),
        head_(head),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        tile_(warp_ % Shape::warps),
        products_(shared.levels, tile_) {}

  /// A row of f32 for each value head; those of the call are of elements.
  static __device__ __forceinline__ bool has_shares(const delta_rule_output& rows) {
    return rows.type == dtype::f32;
  }
  __device__ __forceinline__ float2 sums_at(int token, int channel) const {
    return *reinterpret_cast<const float2*>(sums_ + token * Shape::keys + channel);
  }

  /// Calls body(half, n, row, channel) for the lane's pairs of neighbouring channels of a block.
  template <class Body>
  __device__ __forceinline__ void for_each_pair(int block, const Body& body) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2, n = i % 2;
      body(half, n, products_.row_of_half(block, half), products_.channel_of(n));
    }
  }
  /// Sums of rows over the warp's channels to dots `number`.
  __device__ __forceinline__ void put_dots(int number, int block, const float (&sums)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = prim::cuda::sum_of_quad(sums[half]);
      if (lane_ % 4 == 0) {
        shared_.dots[number][tile_][products_.row_of_half(block, half)] = sum;
      }
    }
  }
  /// 2^(G - h), or with sign -1 its inverse.
  __device__ __forceinline__ float2 factors_at(int row, int channel, float sign) const {
    const float2 sums = sums_at(row, channel);
    const int tile = row / level_tokens;
    return make_float2(
        prim::cuda::exp2_fast(sign * (sums.x - shared_.levels.level(tile, channel))),
        prim::cuda::exp2_fast(sign * (sums.y - shared_.levels.level(tile, channel + 1))));
  }
  __device__ __forceinline__ float2 pair_of(unsigned char* rows, int row, int channel) const {
    const std::uint32_t word = pair_in<Shape>(rows, row, channel);
    return make_float2(words::unpack(static_cast<std::uint16_t>(word)),
                       words::unpack(static_cast<std::uint16_t>(word >> 16)));
  }
  __device__ __forceinline__ void put_pair(unsigned char* rows, int row, int channel, float x,
                                           float y) const {
    pair_in<Shape>(rows, row, channel) = words::pack(x, y);
  }
  __device__ __forceinline__ float2& sum_of(int row, int channel) const {
    return *reinterpret_cast<float2*>(&shared_.d_sum[row][channel]);
  }

  /// Barriers of all warps, for what readers leave writers of 16 tokens, and of one half of them.
  enum barrier : std::uint8_t { of_all = 0, of_readers = 1, of_writers = 2 };
  template <barrier Number, int Threads>
  static __device__ __forceinline__ void wait() {
    asm volatile("bar.sync %0, %1;" ::"n"(static_cast<int>(Number)), "n"(Threads) : "memory");
  }

  struct measured_rows {
    const void* data;
    const ordered_rows* order;
    const float* lengths;  ///< 1 over them
    int dots;
  };
  /// Through the length of a row: its gradient has nothing along it.
  __device__ __forceinline__ void remove_along(block_sums& sums, int block,
                                               const measured_rows& rows) const {
    const auto* const elements = static_cast<const Element*>(rows.data);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = products_.row_of_half(block, half);
      if (row >= chunk_.count) continue;
      const float along = rows.lengths[row] * rows.lengths[row] * shared_.dot_of(rows.dots, row);
      const Element* const own = elements + rows.order->at(chunk_.first + row);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int channel = products_.channel_of(i / 2) + i % 2;
        if (channel >= call_.key_dim) continue;
        float& x = sums.at[i / 2].at[2 * half + i % 2];
        x = fmaf(-along, words::unpack(own[channel].bits), x);
      }
    }
  }
  /// The warp's part of rows, through its part of `staged`.
  __device__ __forceinline__ void store(const block_sums& sums, int block,
                                        const delta_rule_output& to, const ordered_rows& rows,
                                        unsigned char* staged) const {
    const int columns = static_cast<int>(call_.key_dim);
    if (has_shares(to)) {
      auto* const singles = static_cast<float*>(to.data);
      for_each_pair(block, [&](int half, int n, int row, int channel) {
        if (row >= chunk_.count) return;
        float* const own = singles + rows.at(chunk_.first + row) + channel;
        const float* const x = sums.at[n].at + 2 * half;
        if (channel < columns) own[0] = x[0];
        if (channel + 1 < columns) own[1] = x[1];
      });
      return;
    }
    for_each_pair(block, [&](int half, int n, int row, int channel) {
      const float* const x = sums.at[n].at + 2 * half;
      put_pair(staged, row, channel, x[0], x[1]);
    });
    __syncwarp();
    const int row = block * 16 + lane_ / 2, channel = tile_ * 16 + lane_ % 2 * 8;
    if (row >= chunk_.count || channel >= columns) return;
    const auto* const from = reinterpret_cast<const std::uint16_t*>(
        staged +
        key_rows::offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(channel / 8)));
    Element* const own = static_cast<Element*>(to.data) + rows.at(chunk_.first + row) + channel;
    if (channel + 8 <= columns) {
      *reinterpret_cast<uint4*>(own) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int j = 0; j < columns - channel; ++j) own[j].bits = from[j];
    }
  }

  const chunk_back_args& args_;
  const delta_rule_kernel_args& call_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_;
  chunk_place chunk_{};
  const float* sums_ = nullptr;  ///< of log decays, of the chunk
  int warp_, lane_, tile_;
  products_type products_;
};

}  // namespace tessera::kernels::delta_rule::sm80
