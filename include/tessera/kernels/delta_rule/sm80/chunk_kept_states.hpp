// States that the scans of the way back have kept, S in front of a chunk and D behind it, as a warp
// that has 16 channels of all tokens takes them: as operands, 16 values at a time.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// The warp's channels of a state, by some tiles of 16 values.
template <int Tiles>
struct kept_operands {
  uint4 at[Tiles];
};

/// A state's channels from 16 `tile` on, of `depths` tiles of channels in all.
class kept_channels {
 public:
  __device__ __forceinline__ kept_channels(const chunk_back_args& args, const uint4* states,
                                           std::int64_t place, int depths, int tile)
      : value_tiles_(args.value_tiles),
        own_(states + (place * depths + tile) * args.value_tiles * 32 +
             static_cast<int>(threadIdx.x) % 32) {}

  template <int Tiles>
  __device__ __forceinline__ kept_operands<Tiles> load(int begin) const {
    kept_operands<Tiles> operands;
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      operands.at[i] = begin + i < value_tiles_ ? own_[(begin + i) * 32] : uint4{};
    }
    return operands;
  }
  /// A lane's lines.
  __device__ __forceinline__ void prefetch() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = lane * 8; i < value_tiles_ * 32; i += 256) prim::cuda::fetch_line(own_ - lane + i);
  }

 private:
  int value_tiles_;
  const uint4* own_;
};

/// += rows states^T, of tiles from `begin` on, by rows of values.
template <int Tiles, class Element, class Shape>
__device__ __forceinline__ void multiply_kept(
    recurrence::sm80::chunk_answers<Element, Shape>& answers, const kept_operands<Tiles>& operands,
    int begin, const unsigned char* values) {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  const std::uint32_t first =
      prim::cuda::shared_address(values) + key_rows::lane_of_a(prim::cuda::thread_index() % 32);
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
    const uint4& of = operands.at[i];
    const prim::cuda::fragment_b2 channels{{of.x, of.y, of.z, of.w}};
    prim::cuda::fragment_a rows[4];
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      prim::cuda::load_matrices(rows[block].reg, key_rows::step(first, block, begin + i));
    }
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      words::template multiply_add<0>(answers.at[block][0], rows[block], channels);
      words::template multiply_add<1>(answers.at[block][1], rows[block], channels);
    }
  }
}

/// Of two pairs of elements.
template <class Element>
__device__ __forceinline__ float product_of(std::uint32_t x, std::uint32_t y) {
  using words = prim::cuda::half_words<Element>;
  return fmaf(words::unpack(static_cast<std::uint16_t>(x)),
              words::unpack(static_cast<std::uint16_t>(y)),
              words::unpack(static_cast<std::uint16_t>(x >> 16)) *
                  words::unpack(static_cast<std::uint16_t>(y >> 16)));
}

}  // namespace tessera::kernels::delta_rule::sm80
