// The pieces of prim/cuda for f32 elements, as in prim.cu.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/split_products.hpp>

#include "tests/cuda/device_values.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::device_test::device_values;

constexpr int width = 64;
using tile = shared_tile<16, 2 * width>;

__device__ void load_tile(std::uint32_t to, const float* from) {
  for (int i = static_cast<int>(threadIdx.x); i < 16 * tile::chunks; i += 32) {
    const auto row = static_cast<std::uint32_t>(i / tile::chunks);
    const auto chunk = static_cast<std::uint32_t>(i % tile::chunks);
    copy_async_16(to + tile::offset(row, chunk), from + row * width + chunk * 4);
  }
  commit_copies();
  wait_copies<0>();
  __syncwarp();
}

/// out [16][16] = A B^T of two 16 x 64 matrices; the sums of small parts apart.
__global__ void split_products(const float* a, const float* b, float* out) {
  __shared__ __align__(1024) unsigned char shared[2 * tile::bytes];
  const std::uint32_t a_tile = shared_address(shared);
  const std::uint32_t b_tile = a_tile + tile::bytes;
  load_tile(a_tile, a);
  load_tile(b_tile, b);
  const unsigned lane = threadIdx.x;
  accumulator sums[2] = {};
  accumulator small[2] = {};
  for (int step = 0; step < width / 8; ++step) {
    fragment_a left;
    fragment_b2 right;
    load_matrices(left.reg, tile::step(a_tile + tile::lane_of_a(lane), 0, step));
    load_matrices(right.reg, tile::step(b_tile + tile::lane_of_b(lane), 0, step));
    const auto rows = split_of(left.reg);
    const auto columns = split_of(right.reg);
    multiply_add_tf32<0>(sums[0], rows.high, columns.high);
    multiply_add_tf32<2>(sums[1], rows.high, columns.high);
    multiply_add_tf32<0>(small[0], rows.high, columns.low);
    multiply_add_tf32<2>(small[1], rows.high, columns.low);
    multiply_add_tf32<0>(small[0], rows.low, columns.high);
    multiply_add_tf32<2>(small[1], rows.low, columns.high);
  }
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned e = 0; e < 4; ++e) {
      out[(e / 2 * 8 + lane / 4) * 16 + n * 8 + lane % 4 * 2 + e % 2] =
          sums[n].at[e] + small[n].at[e];
    }
  }
}

TEST(prim_cuda_single, split_products_have_the_precision_of_single) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (const float scale : {1.0f, 1e18f, 1e-12f}) {
    std::vector<float> a(16 * width);
    std::vector<float> b(16 * width);
    for (float& x : a) x = normal(engine) * scale;
    for (float& x : b) x = normal(engine);
    device_values<float> left(a), right(b), out(std::vector<float>(256));
    split_products<<<1, 32>>>(left.data(), right.data(), out.data());
    const std::vector<float>& found = out.fetch();
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 16; ++j) {
        double sum = 0;
        double size = 0;
        for (std::size_t d = 0; d < width; ++d) {
          const double term = double{a[i * width + d]} * b[j * width + d];
          sum += term;
          size += std::fabs(term);
        }
        EXPECT_LE(std::fabs(double{found[i * 16 + j]} - sum), 0x1p-22 * size) << i << " " << j;
      }
    }
  }
}

__global__ void split_parts(const float* x, float* high, float* low) {
  std::uint32_t parts[2];
  split(__float_as_uint(x[threadIdx.x]), parts[0], parts[1]);
  high[threadIdx.x] = __uint_as_float(parts[0]);
  low[threadIdx.x] = __uint_as_float(parts[1]);
}

TEST(prim_cuda_single, parts_have_eleven_bits_and_add_up) {
  const std::vector<float> x{
      1.0f, 1.0f + 0x1p-23f, -0x1.fffffep+3f, 3.14159274f, 0x1.001p-60f, -1e30f, 0.0f, 0x1.002p0f};
  device_values<float> from(x), high(x), low(x);
  split_parts<<<1, 8>>>(from.data(), high.data(), low.data());
  const std::vector<float> highs = high.fetch();
  const std::vector<float> lows = low.fetch();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(highs[i] + lows[i], x[i]) << i;
    EXPECT_LE(std::fabs(lows[i]), std::fabs(x[i]) * 0x1p-11f) << i;
    int exponent = 0;
    const float digits = std::ldexp(std::frexp(highs[i], &exponent), 11);
    EXPECT_EQ(digits, std::trunc(digits)) << i;
  }
}

/// Lane l's elements (row 2t, column 8 n + g) and (2t + 1, 8 n + g) of rows 8 and later.
__global__ void single_elements(const float* from, float* even, float* odd) {
  __shared__ __align__(1024) unsigned char shared[tile::bytes];
  const std::uint32_t at = shared_address(shared);
  load_tile(at, from);
  const std::uint32_t base = at + tile::lane_of_single(threadIdx.x);
  for (std::uint32_t n = 0; n < width / 8; ++n) {
    const std::uint32_t here = base ^ (n % 4 * 32);
    const std::uint32_t down = n / 4 * 128 + 8 * tile::row_bytes;
    even[n * 32 + threadIdx.x] = __uint_as_float(load_shared_4(here + down));
    odd[n * 32 + threadIdx.x] =
        __uint_as_float(load_shared_4((here ^ 16u) + down + tile::row_bytes));
  }
}

TEST(prim_cuda_single, lanes_find_their_elements) {
  std::vector<float> numbers(16 * width);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  device_values<float> from(numbers);
  device_values<float> even(std::vector<float>(width * 4)), odd(std::vector<float>(width * 4));
  single_elements<<<1, 32>>>(from.data(), even.data(), odd.data());
  const std::vector<float> evens = even.fetch();
  const std::vector<float> odds = odd.fetch();
  for (std::size_t n = 0; n < width / 8; ++n) {
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const std::size_t row = 8 + lane % 4 * 2;
      const std::size_t column = n * 8 + lane / 4;
      EXPECT_EQ(evens[n * 32 + lane], numbers[row * width + column]);
      EXPECT_EQ(odds[n * 32 + lane], numbers[(row + 1) * width + column]);
    }
  }
}

__global__ void pairs_and_bits(const float* x, std::uint32_t* stored, std::uint32_t* finite,
                               std::uint32_t* flags) {
  __shared__ uint2 pairs[8];
  const std::uint32_t word = __float_as_uint(x[threadIdx.x]);
  store_shared_8(shared_address(&pairs[threadIdx.x]), word, word + 1);
  __syncwarp(0xff);
  stored[2 * threadIdx.x] = pairs[threadIdx.x].x;
  stored[2 * threadIdx.x + 1] = pairs[threadIdx.x].y;
  finite[threadIdx.x] = finite_only<float>(word);
  flags[threadIdx.x] = any_not_finite<float>(word) ? 1 : 0;
}

TEST(prim_cuda_single, pairs_are_stored_and_infinite_elements_found) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{0.0f,          -1.5f,           infinity, -infinity,
                             std::nanf(""), 0x1.fffffep127f, 1e-40f,   3.0f};
  device_values<float> from(x);
  device_values<std::uint32_t> stored(std::vector<std::uint32_t>(16)),
      finite(std::vector<std::uint32_t>(8)), flags(std::vector<std::uint32_t>(8));
  pairs_and_bits<<<1, 8>>>(from.data(), stored.data(), finite.data(), flags.data());
  const std::vector<std::uint32_t> words = stored.fetch();
  const std::vector<std::uint32_t> kept = finite.fetch();
  const std::vector<std::uint32_t> found = flags.fetch();
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x[i], sizeof(bits));
    EXPECT_EQ(words[2 * i], bits);
    EXPECT_EQ(words[2 * i + 1], bits + 1);
    EXPECT_EQ(found[i] != 0, !std::isfinite(x[i])) << i;
    EXPECT_EQ(kept[i], std::isfinite(x[i]) ? bits : 0u) << i;
  }
}

}  // namespace
