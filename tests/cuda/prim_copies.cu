// The copies and pipelines of prim/cuda, as in prim.cu.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/pipeline.hpp>

#include "tests/cuda/device_values.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::device_test::device_values;

__global__ void copy_parts(const uint4* from, uint4* to) {
  __shared__ uint4 shared[17];
  shared[threadIdx.x] = make_uint4(~0u, ~0u, ~0u, ~0u);
  __syncthreads();
  if (threadIdx.x == 0) {
    for (std::uint32_t bytes = 0; bytes <= 16; ++bytes) {
      copy_async_16(shared_address(&shared[bytes]), bytes == 0 ? nullptr : from + bytes, bytes);
      commit_copies();
    }
    wait_copies<0>();
  }
  __syncthreads();
  to[threadIdx.x] = shared[threadIdx.x];
}

TEST(prim_cuda, copy_async_fills_up_with_zeros) {
  std::vector<std::uint8_t> bytes(17 * 16);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 251 + 1);
  device_values<std::uint8_t> from(bytes), to(std::vector<std::uint8_t>(17 * 16));
  copy_parts<<<1, 17>>>(reinterpret_cast<const uint4*>(from.data()),
                        reinterpret_cast<uint4*>(to.data()));
  const auto copied = to.fetch();
  for (std::size_t n = 0; n <= 16; ++n) {
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(copied[n * 16 + i], i < n ? bytes[n * 16 + i] : 0) << n << " " << i;
    }
  }
}

/// Chunk 0 and word 4 of it are wanted, the others have no source.
__global__ void copy_or_zeros(const uint4* from, uint4* to) {
  __shared__ uint4 shared[3];
  shared[threadIdx.x] = make_uint4(~0u, ~0u, ~0u, ~0u);
  __syncthreads();
  if (threadIdx.x == 0) {
    copy_async_16_or_zeros(shared_address(&shared[0]), from, true);
    copy_async_16_or_zeros(shared_address(&shared[1]), nullptr, false);
    copy_async_4(shared_address(&shared[2].x), &from->y, true);
    copy_async_4(shared_address(&shared[2].y), nullptr, false);
    commit_copies();
    wait_copies<0>();
  }
  __syncthreads();
  to[threadIdx.x] = shared[threadIdx.x];
}

TEST(prim_cuda, copy_async_writes_zeros_where_nothing_is_wanted) {
  device_values<std::uint32_t> from(std::vector<std::uint32_t>{1, 2, 3, 4});
  device_values<std::uint32_t> to(std::vector<std::uint32_t>(12));
  copy_or_zeros<<<1, 3>>>(reinterpret_cast<const uint4*>(from.data()),
                          reinterpret_cast<uint4*>(to.data()));
  const std::vector<std::uint32_t> expected{1, 2, 3, 4, 0, 0, 0, 0, 2, 0, ~0u, ~0u};
  EXPECT_EQ(to.fetch(), expected);
}

/// Sums over tiles that pass through a pipeline; every thread reads what another one has copied.
template <int Stages>
__global__ void sum_tiles(const uint4* from, unsigned* sums, int tiles) {
  __shared__ uint4 shared[Stages][64];
  pipeline<Stages> places;
  const auto ask = [&](int tile, int stage) {
    const std::uint32_t to = shared_address(&shared[stage][threadIdx.x]);
    if (tile < tiles) copy_async_16(to, from + tile * 64 + threadIdx.x);
    places.commit();
  };
  ask(0, places.stage());
  unsigned sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    places.wait();
    if (Stages == 2) ask(tile + 1, places.next_stage());
    sum += shared[places.stage()][63 - threadIdx.x].x;
    if (Stages == 1) {
      places.wait();
      ask(tile + 1, places.next_stage());
    }
    places.advance();
  }
  places.drain();
  sums[threadIdx.x] = sum;
}

/// The same with as many tiles under way as there are places.
template <int Stages>
__global__ void sum_tiles_under_way(const uint4* from, unsigned* sums, int tiles) {
  __shared__ uint4 shared[Stages][64];
  pipeline<Stages> places;
  const auto ask = [&](int tile, int stage) {
    const std::uint32_t to = shared_address(&shared[stage][threadIdx.x]);
    copy_async_16_or_zeros(to, from + tile * 64 + threadIdx.x, tile < tiles);
    places.commit();
  };
  for (int stage = 0; stage < Stages; ++stage) ask(stage, stage);
  unsigned sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    places.template wait<Stages - 1>();
    sum += shared[places.stage()][63 - threadIdx.x].x;
    __syncthreads();
    ask(tile + Stages, places.stage());
    places.advance();
  }
  places.drain();
  sums[threadIdx.x] = sum;
}

TEST(prim_cuda, pipeline_hands_over_every_tile_once) {
  constexpr int tiles = 37;
  std::vector<std::uint32_t> words(tiles * 64 * 4);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * i + 1);
  device_values<std::uint32_t> from(words);
  device_values<unsigned> alone(std::vector<unsigned>(64)), two(std::vector<unsigned>(64));
  sum_tiles<1><<<1, 64>>>(reinterpret_cast<const uint4*>(from.data()), alone.data(), tiles);
  sum_tiles<2><<<1, 64>>>(reinterpret_cast<const uint4*>(from.data()), two.data(), tiles);
  std::vector<unsigned> expected(64);
  for (std::size_t i = 0; i < tiles * 64; ++i) expected[63 - i % 64] += words[i * 4];
  EXPECT_EQ(alone.fetch(), expected);
  EXPECT_EQ(two.fetch(), expected);
  device_values<unsigned> four(std::vector<unsigned>(64));
  sum_tiles_under_way<4>
      <<<1, 64>>>(reinterpret_cast<const uint4*>(from.data()), four.data(), tiles);
  EXPECT_EQ(four.fetch(), expected);
}

}  // namespace
