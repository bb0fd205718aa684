// A device test per piece of prim/cuda: each kernel writes what the piece computes, and the host
// compares it with the plain definition.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

#include "tests/cuda/device_values.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::bf16;
using tessera::f16;
using tessera::device_test::device_values;

template <class Element>
std::vector<std::uint16_t> small_numbers(int count, int salt) {
  std::vector<std::uint16_t> bits;
  for (int i = 0; i < count; ++i) {
    bits.push_back(Element(static_cast<float>((i * 7 + salt) % 13 - 6) * 0.5f).bits);
  }
  return bits;
}

/// A and B as shared tiles of `Width` columns; out = A B^T (B rows are columns) or, transposed, A C
/// with C [Width of A][16].
template <class Element, int Width>
__global__ void products(const std::uint16_t* a, const std::uint16_t* b, float* out) {
  using tile = shared_tile<32, Width>;
  __shared__ __align__(1024) unsigned char shared[2 * tile::bytes];
  const std::uint32_t a_tile = shared_address(shared);
  const std::uint32_t b_tile = a_tile + tile::bytes;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 32 * tile::chunks; i += 32) {
    const int row = i / tile::chunks;
    const int chunk = i % tile::chunks;
    copy_async_16(a_tile + tile::offset(row, chunk), a + row * Width + chunk * 8);
    copy_async_16(b_tile + tile::offset(row, chunk), b + row * Width + chunk * 8);
  }
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  accumulator c[2][2] = {};
  for (int step = 0; step < Width / 16; ++step) {
    fragment_b2 right;
    load_matrices(right.reg, tile::step(b_tile + tile::lane_of_b(lane), 1, step));
    for (int m = 0; m < 2; ++m) {
      fragment_a left;
      load_matrices(left.reg, tile::step(a_tile + tile::lane_of_a(lane), m, step));
      half_words<Element>::template multiply_add<0>(c[m][0], left, right);
      half_words<Element>::template multiply_add<1>(c[m][1], left, right);
    }
  }
  for (int m = 0; m < 2; ++m) {
    for (int n = 0; n < 2; ++n) {
      for (int e = 0; e < 4; ++e) {
        out[(m * 16 + e / 2 * 8 + lane / 4) * 16 + n * 8 + lane % 4 * 2 + e % 2] = c[m][n].at[e];
      }
    }
  }
}

template <class Element, int Width>
void check_products() {
  const auto a = small_numbers<Element>(32 * Width, 1);
  const auto b = small_numbers<Element>(32 * Width, 5);
  device_values<std::uint16_t> da(a), db(b);
  device_values<float> out(std::vector<float>(32 * 16, NAN));
  products<Element, Width><<<1, 32>>>(da.data(), db.data(), out.data());
  const auto got = out.fetch();
  const auto value = [](std::uint16_t bits) {
    Element e;
    e.bits = bits;
    return static_cast<float>(e);
  };
  for (std::size_t i = 0; i < 32; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      float sum = 0.0f;
      for (std::size_t d = 0; d < Width; ++d) {
        sum += value(a[i * Width + d]) * value(b[(16 + j) * Width + d]);
      }
      ASSERT_EQ(got[i * 16 + j], sum) << Width << " " << i << " " << j;
    }
  }
}

TEST(prim_cuda, products_of_swizzled_tiles_are_exact) {
  check_products<bf16, 16>();
  check_products<bf16, 48>();
  check_products<bf16, 64>();
  check_products<f16, 96>();
  check_products<f16, 128>();
  check_products<bf16, 256>();
}

/// out[row][column] = sum over keys of weights[row][key] values[key][column]: both stored by rows.
template <class Element, int Width>
__global__ void transposed_products(const std::uint16_t* weights, const std::uint16_t* values,
                                    float* out) {
  using left = shared_tile<16, 16>;
  using right = shared_tile<16, Width>;
  __shared__ __align__(1024) unsigned char shared[left::bytes + right::bytes];
  const std::uint32_t w = shared_address(shared);
  const std::uint32_t v = w + left::bytes;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * left::chunks; i += 32) {
    copy_async_16(w + left::offset(i / left::chunks, i % left::chunks), weights + i * 8);
  }
  for (int i = lane; i < 16 * right::chunks; i += 32) {
    copy_async_16(v + right::offset(i / right::chunks, i % right::chunks), values + i * 8);
  }
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  fragment_a a;
  load_matrices(a.reg, w + left::lane_of_a(lane));
  for (int d = 0; d < Width / 16; ++d) {
    accumulator c[2] = {};
    fragment_b2 b;
    load_matrices_transposed(b.reg, right::step(v + right::lane_of_a(lane), 0, d));
    half_words<Element>::template multiply_add<0>(c[0], a, b);
    half_words<Element>::template multiply_add<1>(c[1], a, b);
    for (int n = 0; n < 2; ++n) {
      for (int e = 0; e < 4; ++e) {
        out[(e / 2 * 8 + lane / 4) * Width + d * 16 + n * 8 + lane % 4 * 2 + e % 2] = c[n].at[e];
      }
    }
  }
}

TEST(prim_cuda, transposed_loads_read_columns) {
  constexpr int width = 80;
  const auto w = small_numbers<f16>(16 * 16, 3);
  const auto v = small_numbers<f16>(16 * width, 2);
  device_values<std::uint16_t> dw(w), dv(v);
  device_values<float> out(std::vector<float>(16 * width, NAN));
  transposed_products<f16, width><<<1, 32>>>(dw.data(), dv.data(), out.data());
  const auto got = out.fetch();
  const auto value = [](std::uint16_t bits) {
    f16 e;
    e.bits = bits;
    return static_cast<float>(e);
  };
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t d = 0; d < width; ++d) {
      float sum = 0.0f;
      for (std::size_t k = 0; k < 16; ++k) sum += value(w[i * 16 + k]) * value(v[k * width + d]);
      ASSERT_EQ(got[i * width + d], sum) << i << " " << d;
    }
  }
}

template <int Width>
__global__ void offsets(std::uint32_t* out) {
  using tile = shared_tile<64, Width>;
  const int row = static_cast<int>(threadIdx.x);
  for (int chunk = 0; chunk < tile::chunks; ++chunk) {
    out[row * tile::chunks + chunk] = tile::offset(row, chunk);
    if (row < 4) {
      for (int down = 0; down < 64; down += 4) {
        if (tile::down(tile::offset(row, chunk % 8), down) != tile::offset(row + down, chunk % 8)) {
          out[0] = ~0u;
        }
      }
    }
  }
}

TEST(prim_cuda, chunks_of_a_tile_have_places_of_their_own) {
  device_values<std::uint32_t> out(std::vector<std::uint32_t>(64 * 12));
  offsets<96><<<1, 64>>>(out.data());
  const auto got = out.fetch();
  std::vector<bool> used(64 * 256 / 16, false);
  for (const std::uint32_t offset : got) {
    ASSERT_EQ(offset % 16, 0u);
    ASSERT_LT(offset, 64u * 256u);
    ASSERT_FALSE(used[offset / 16]) << offset;
    used[offset / 16] = true;
  }
  for (std::size_t first = 0; first < 64; first += 8) {
    for (std::size_t chunk = 0; chunk < 12; ++chunk) {
      unsigned banks = 0;
      for (std::size_t r = 0; r < 8; ++r) banks |= 1u << (got[(first + r) * 12 + chunk] / 16 % 8);
      EXPECT_EQ(banks, 255u) << "eight rows of a chunk share a bank";
    }
  }
}

struct lane_results {
  float quad_maximum, quad_sum, power, inverse, inverse_of_infinity;
  int any, least, most, sum, thread;
};

__global__ void exchange(lane_results* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float x = static_cast<float>((lane * 5) % 17);
  out[threadIdx.x] = {maximum_of_quad(x),
                      sum_of_quad(x),
                      exp2_fast(x * 0.25f - 3.0f),
                      reciprocal_fast(x * 0.25f + 0.3f),
                      reciprocal_fast(1.0f + exp2_fast(x + 128.0f)),
                      any_of_warp(threadIdx.x == 40) ? 1 : 0,
                      minimum_of_warp(lane * 3 % 31 - 4),
                      maximum_of_warp(lane * 3 % 31 - 4),
                      inclusive_sum_of_warp(lane % 5, lane),
                      static_cast<int>(thread_index())};
}

TEST(prim_cuda, lanes_exchange_what_they_say) {
  device_values<lane_results> out(std::vector<lane_results>(64));
  exchange<<<1, 64>>>(out.data());
  const auto got = out.fetch();
  for (int thread = 0; thread < 64; ++thread) {
    const lane_results& results = got[static_cast<std::size_t>(thread)];
    const int lane = thread % 32;
    float most = 0.0f, sum = 0.0f;
    for (int l = lane / 4 * 4; l < lane / 4 * 4 + 4; ++l) {
      most = std::max(most, static_cast<float>(l * 5 % 17));
      sum += static_cast<float>(l * 5 % 17);
    }
    int before = 0;
    for (int l = 0; l <= lane; ++l) before += l % 5;
    EXPECT_EQ(results.quad_maximum, most);
    EXPECT_EQ(results.quad_sum, sum);
    const float power = std::exp2(static_cast<float>(lane * 5 % 17) * 0.25f - 3.0f);
    EXPECT_NEAR(results.power, power, power * 3e-7f);
    const float inverse = 1.0f / (static_cast<float>(lane * 5 % 17) * 0.25f + 0.3f);
    EXPECT_NEAR(results.inverse, inverse, inverse * 3e-7f);
    EXPECT_EQ(results.inverse_of_infinity, 0.0f);
    EXPECT_EQ(results.any, thread >= 32 ? 1 : 0);
    EXPECT_EQ(results.least, -4);
    EXPECT_EQ(results.most, 26);
    EXPECT_EQ(results.sum, before);
    EXPECT_EQ(results.thread, thread);
  }
}

template <class Element>
__global__ void words_of(const float* x, std::uint32_t* packed, float* unpacked,
                         std::uint32_t* finite) {
  const std::uint32_t word = half_words<Element>::pack(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
  packed[threadIdx.x] = word;
  unpacked[2 * threadIdx.x] = half_words<Element>::unpack(static_cast<std::uint16_t>(word));
  unpacked[2 * threadIdx.x + 1] =
      half_words<Element>::unpack(static_cast<std::uint16_t>(word >> 16));
  finite[threadIdx.x] = finite_only<Element>(word) ^ (any_not_finite<Element>(word) ? 1u : 0u);
}

template <class Element>
void check_words() {
  const std::vector<float> x{1.0f,  -2.5f,       3.14159f, 1e30f,  INFINITY, 2.0f,
                             -1.0f, -INFINITY,   NAN,      1e-30f, 0.1f,     65519.0f,
                             -0.0f, 6.1035e-05f, 5.9e-8f,  0.3333f};
  const auto count = x.size() / 2;
  device_values<float> dx(x), unpacked(std::vector<float>(x.size()));
  device_values<std::uint32_t> packed{std::vector<std::uint32_t>(count)};
  device_values<std::uint32_t> finite{std::vector<std::uint32_t>(count)};
  words_of<Element><<<1, static_cast<unsigned>(count)>>>(dx.data(), packed.data(), unpacked.data(),
                                                         finite.data());
  const auto words = packed.fetch();
  const auto floats = unpacked.fetch();
  const auto kept = finite.fetch();
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t want = 0;
    bool special = false;
    for (std::size_t half = 0; half < 2; ++half) {
      const Element e(x[2 * i + half]);
      const float back = static_cast<float>(e);
      const auto bits = static_cast<std::uint16_t>(words[i] >> (16 * half));
      if (std::isnan(back)) {
        EXPECT_TRUE(std::isnan(floats[2 * i + half]));
      } else {
        EXPECT_EQ(bits, e.bits) << x[2 * i + half];
        EXPECT_EQ(floats[2 * i + half], back);
      }
      special = special || !std::isfinite(back);
      if (std::isfinite(back)) want |= static_cast<std::uint32_t>(bits) << (16 * half);
    }
    EXPECT_EQ(kept[i], want ^ (special ? 1u : 0u)) << i;
  }
}

TEST(prim_cuda, words_are_those_of_the_host) {
  check_words<bf16>();
  check_words<f16>();
}

__global__ void draw(std::uint32_t* out) {
  const auto words = tessera::prim::dropout_words(0x123456789abcdefull, blockIdx.x,
                                                  static_cast<int>(threadIdx.x), 77, 4 * 13);
  for (std::size_t i = 0; i < 4; ++i) out[(blockIdx.x * 8 + threadIdx.x) * 4 + i] = words[i];
}

TEST(prim_cuda, dropout_draws_the_words_of_the_host) {
  device_values<std::uint32_t> out(std::vector<std::uint32_t>(3 * 8 * 4));
  draw<<<3, 8>>>(out.data());
  const auto got = out.fetch();
  for (int entry = 0; entry < 3; ++entry) {
    for (int head = 0; head < 8; ++head) {
      const auto want = tessera::prim::dropout_words(0x123456789abcdefull, entry, head, 77, 4 * 13);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(got[static_cast<std::size_t>(entry * 8 + head) * 4 + i], want[i]);
      }
    }
  }
}

}  // namespace
