// Device tests of pieces of prim/cuda that are a few instructions: words in shared memory, tiles
// transposed in registers, votes of some threads, numbers of any type, tanh.
#include <cmath>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_words.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/thread_votes.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>
#include <tessera/spec/dtype.hpp>

#include "tests/cuda/device_values.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::bf16;
using tessera::dtype;
using tessera::f16;
using tessera::device_test::device_values;

struct words_found {
  std::uint32_t low, high;
  std::uint32_t halves[4];
  std::uint32_t bytes[8];
};

/// Lane l copies 8 bytes, every third lane zeros instead, and reads those of the lane before it.
/// The lines are asked for before.
__global__ void copy_words(const std::uint64_t* from, words_found* found) {
  __shared__ __align__(16) std::uint64_t shared[32];
  const unsigned lane = threadIdx.x;
  if (lane < 2) fetch_line(from + lane * 16);
  shared[lane] = ~std::uint64_t{0};
  __syncwarp();
  const bool wanted = lane % 3 != 0;
  copy_async_8(shared_address(shared + lane), wanted ? from + lane : nullptr, wanted);
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  const std::uint32_t at = shared_address(shared + (lane + 31) % 32);
  words_found& mine = found[lane];
  load_shared_8(mine.low, mine.high, at);
  for (unsigned i = 0; i < 4; ++i) mine.halves[i] = load_shared_2(at + 2 * i);
  for (unsigned i = 0; i < 8; ++i) mine.bytes[i] = load_shared_1(at + i);
}

TEST(prim_cuda_small, words_of_any_width_come_from_shared_memory) {
  std::vector<std::uint64_t> values(32);
  for (std::size_t i = 0; i < 32; ++i) values[i] = (i + 1) * 0x0123456789abcdefull;
  device_values<std::uint64_t> from(values);
  device_values<words_found> found{std::vector<words_found>(32)};
  copy_words<<<1, 32>>>(from.data(), found.data());
  const auto got = found.fetch();
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::size_t other = (lane + 31) % 32;
    const std::uint64_t value = other % 3 != 0 ? values[other] : 0;
    EXPECT_EQ(got[lane].low, static_cast<std::uint32_t>(value)) << lane;
    EXPECT_EQ(got[lane].high, static_cast<std::uint32_t>(value >> 32)) << lane;
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(got[lane].halves[i], value >> (16 * i) & 0xffffu) << lane << ", " << i;
    }
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(got[lane].bytes[i], value >> (8 * i) & 0xffu) << lane << ", " << i;
    }
  }
  EXPECT_EQ(from.fetch(), values);
}

__global__ void transpose(const std::uint32_t* from, std::uint32_t* to) {
  to[threadIdx.x] = transposed_tile(from[threadIdx.x]);
}

TEST(prim_cuda_small, tiles_are_transposed_in_registers) {
  const auto element = [](std::uint32_t row, std::uint32_t column) {
    return 1000u + 100u * row + column;
  };
  std::vector<std::uint32_t> values, expected;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t row = lane / 4, column = lane % 4 * 2;
    values.push_back(element(row, column) | element(row, column + 1) << 16);
    expected.push_back(element(column, row) | element(column + 1, row) << 16);
  }
  device_values<std::uint32_t> from(values), to(std::vector<std::uint32_t>(32));
  transpose<<<1, 32>>>(from.data(), to.data());
  EXPECT_EQ(to.fetch(), expected);
}

constexpr int vote_rounds = 5;

/// Two pairs of warps, each with a barrier of its own: in round r thread 37 r of the block votes,
/// and none in the last.
__global__ void vote(int* out) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int round = 0; round < vote_rounds; ++round) {
    const bool here = thread == 37 * round && round + 1 < vote_rounds;
    out[round * 128 + thread] = any_of_threads(1 + thread / 64, 64, here) ? 1 : 0;
  }
}

TEST(prim_cuda_small, some_threads_vote_apart_from_others) {
  device_values<int> out{std::vector<int>(vote_rounds * 128, -1)};
  vote<<<1, 128>>>(out.data());
  const auto got = out.fetch();
  for (int round = 0; round < vote_rounds; ++round) {
    for (int thread = 0; thread < 128; ++thread) {
      const bool expected = round + 1 < vote_rounds && 37 * round / 64 == thread / 64;
      EXPECT_EQ(got[static_cast<std::size_t>(round * 128 + thread)], expected ? 1 : 0)
          << round << ", " << thread;
    }
  }
}

/// Every number, times 3 and rounded, takes the place of the one behind it; and sums of warps.
__global__ void treble(const void* from, void* to, dtype type, int count, float* sum) {
  const int i = static_cast<int>(threadIdx.x);
  const float x = number_at(from, type, i);
  put_number(to, type, (i + 1) % count, 3.0f * x);
  sum[i] = sum_of_warp(static_cast<float>(i * 5 % 37));
}

template <class Element>
void expect_trebled(dtype type) {
  constexpr int count = 64;
  std::vector<Element> values;
  for (int i = 0; i < count; ++i) values.push_back(Element(0.37f * static_cast<float>(i - 30)));
  device_values<Element> from(values), to(std::vector<Element>(count, Element(7.0f)));
  device_values<float> sum{std::vector<float>(count)};
  treble<<<1, count>>>(from.data(), to.data(), type, count, sum.data());
  const auto got = to.fetch();
  const auto sums = sum.fetch();
  for (int i = 0; i < count; ++i) {
    const Element expected(3.0f * static_cast<float>(values[static_cast<std::size_t>(i)]));
    EXPECT_EQ(static_cast<float>(got[static_cast<std::size_t>((i + 1) % count)]),
              static_cast<float>(expected))
        << i;
    float of_warp = 0.0f;
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) of_warp += static_cast<float>(k * 5 % 37);
    EXPECT_EQ(sums[static_cast<std::size_t>(i)], of_warp) << i;
  }
}

TEST(prim_cuda_small, numbers_of_any_type_are_read_rounded_and_added) {
  expect_trebled<float>(dtype::f32);
  expect_trebled<f16>(dtype::f16);
  expect_trebled<bf16>(dtype::bf16);
}

struct tanh_found {
  float fast, near, near_value, near_slope, scaled_value, scaled_slope;
};

__global__ void make_tanh(const float* x, tanh_found* found) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const value_with_slope near = tanh_with_slope_near_zero(x[i]);
  const value_with_slope scaled = scaled_tanh_with_slope(x[i] * (2.0f * tessera::prim::log2_e));
  found[i] = {tanh_fast(x[i]), tanh_near_zero(x[i]), near.value,
              near.slope,      scaled.value,         scaled.slope};
}

TEST(prim_cuda_small, tanh_and_its_slope_are_right_to_their_bounds) {
  constexpr unsigned count = 4096;
  std::vector<float> x;
  for (unsigned i = 0; i < count; ++i) {
    const float size = std::exp2(static_cast<float>(i / 2) * (24.0f / (count / 2)) - 20.0f);
    x.push_back(i % 2 == 0 ? size : -size);
  }
  x[0] = 0.0f;
  device_values<float> from(x);
  device_values<tanh_found> to{std::vector<tanh_found>(count)};
  make_tanh<<<count / 128, 128>>>(from.data(), to.data());
  const auto got = to.fetch();
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = std::tanh(static_cast<double>(x[i]));
    const double cosine = std::cosh(static_cast<double>(x[i]));
    const double slope = 1.0 / (cosine * cosine);
    EXPECT_NEAR(got[i].fast, exact, 6e-7 * std::abs(exact)) << x[i];
    EXPECT_NEAR(got[i].scaled_value, exact, 4e-7) << x[i];
    if (std::abs(x[i]) * 2.0f * tessera::prim::log2_e < 29.0f) {
      EXPECT_NEAR(got[i].scaled_slope, slope, 3e-6 * slope) << x[i];
    }
    if (std::abs(x[i]) > tanh_near) continue;
    EXPECT_NEAR(got[i].near, exact, 2e-7 * std::abs(exact)) << x[i];
    EXPECT_EQ(got[i].near_value, got[i].near) << x[i];
    EXPECT_NEAR(got[i].near_slope, slope, 2e-7) << x[i];
  }
}

}  // namespace
