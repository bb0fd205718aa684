// Results do not depend on what earlier kernels left in shared memory.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>

#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

/// Products that are not finite are computed a second time, from whole elements.
struct single_row {
  static constexpr attention_config config{.target = backend::cuda_sm80,
                                           .type = dtype::f32,
                                           .head_dim = 64,
                                           .features = base_features,
                                           .block_q = 64,
                                           .block_kv = 32,
                                           .tiling = {.warps = 4, .blocks_per_sm = 3}};
};
/// Keeps the sources of its tiles in registers.
struct half_row {
  static constexpr attention_config config{
      .target = backend::cuda_sm80,
      .type = dtype::bf16,
      .head_dim = 64,
      .features = base_features,
      .block_q = 128,
      .block_kv = 64,
      .tiling = {.warps = 4, .blocks_per_sm = 2, .q_in_registers = true}};
};

__global__ void fill_shared(int count, float value) {
  extern __shared__ float room[];
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    static_cast<volatile float*>(room)[i] = value;
  }
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess);
  return value;
}

/// Writes `value` to all shared memory that a block can have.
void leave_behind(float value) {
  const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  ASSERT_EQ(cudaFuncSetAttribute(fill_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            cudaSuccess);
  const auto blocks = static_cast<unsigned>(4 * attribute(cudaDevAttrMultiProcessorCount));
  fill_shared<<<blocks, 256, static_cast<std::size_t>(bytes)>>>(
      bytes / static_cast<int>(sizeof(float)), value);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// Outputs of a call whose last tile of keys is not full, after each of the values was left behind.
template <class Row, class Stored>
void expect_same_bits(const std::vector<Stored>& elements) {
  constexpr int heads = 8;
  constexpr int keys = 2 * Row::config.block_kv + 5;
  constexpr int rows = Row::config.block_q + 3;
  constexpr int dim = Row::config.head_dim;
  const auto part = [&](int count) {
    return std::vector<Stored>(elements.begin(), elements.begin() + count * heads * dim);
  };
  device_values<Stored> q(part(rows));
  device_values<Stored> k(part(keys));
  device_values<Stored> v(part(keys));
  device_values<Stored> out(part(rows));
  attention_kernel_args args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = out.data();
  args.q_strides = args.k_strides = args.v_strides = args.out_strides = {0, heads * dim, dim};
  args.batch = 1;
  args.q_len = rows;
  args.kv_len = keys;
  args.q_heads = args.kv_heads = heads;
  args.head_dim = args.v_head_dim = dim;
  args.softmax_scale = 0.125f;
  std::vector<std::vector<Stored>> found;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, nan, 1.0f, infinity}) {
    leave_behind(value);
    const status done = kernels::attention::sm80::launch<Row>(args, {.threads = 1});
    ASSERT_TRUE(done) << done.message();
    found.push_back(out.fetch());
    EXPECT_EQ(found.back(), found.front()) << "after " << value;
  }
}

template <class Stored, class Convert>
std::vector<Stored> normal_elements(const Convert& convert) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<Stored> elements(200 * 8 * 64);
  for (Stored& stored : elements) stored = convert(normal(random));
  return elements;
}

TEST(same_bits, of_f32_whatever_shared_memory_held) {
  expect_same_bits<single_row>(normal_elements<float>([](float x) { return x; }));
}

TEST(same_bits, of_bf16_whatever_shared_memory_held) {
  expect_same_bits<half_row>(normal_elements<std::uint16_t>(
      [](float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }));
}

}  // namespace
}  // namespace tessera::device_test
