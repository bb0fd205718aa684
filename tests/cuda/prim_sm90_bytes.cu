// Device tests of pieces of prim/cuda that need compute capability 9.0: products of 8 bits of a
// warpgroup, and blocks that reach each other's shared memory.
#include <cstdint>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>
#include <tessera/prim/cuda/wgmma_e5m2.hpp>
#include <tessera/spec/float8.hpp>

#include "tests/cuda/device_values.hpp"
#include "tests/cuda/sm90_pieces.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::f8_e4m3;
using tessera::f8_e5m2;
using tessera::device_test::device_values;
using prim_sm90_bytes = tessera::device_test::sm90_pieces;

constexpr int rows = 64;
/// What a row of a panel has.
constexpr int depth = panel_row_bytes;
constexpr int step_depth = narrow_row_bytes;

/// Numbers that every type of 8 bits holds, whole ones for whole types.
int number(int i, int salt) {
  return (i * 7 + i / 5 + salt) % 9 - 4;
}
template <class Element>
std::vector<std::uint8_t> numbers(int count, int salt) {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<Element>) {
      bytes.push_back(static_cast<std::uint8_t>(number(i, salt)));
    } else {
      bytes.push_back(Element(static_cast<float>(number(i, salt))).bits);
    }
  }
  return bytes;
}

template <int N>
struct byte_memory {
  alignas(1024) unsigned char a[rows * depth];
  alignas(1024) unsigned char b[N * depth];
  alignas(1024) unsigned char narrow_b[depth / step_depth][N * step_depth];
};

/// scores = A B^T and, where the product takes A from registers, sums likewise, with A [64, 128]
/// and B [N, 128].
template <class Product, int N, bool Registers>
__global__ void multiply(const std::uint8_t* a_rows, const std::uint8_t* b_rows,
                         typename Product::sum_type* scores, typename Product::sum_type* sums) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<byte_memory<N>*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  const auto place_in_panel = [](int row, int column) {
    return row * panel_row_bytes + ((column / 16) ^ (row % 8)) * 16 + column % 16;
  };
  for (int i = thread; i < rows * depth; i += warpgroup_size) {
    memory.a[place_in_panel(i / depth, i % depth)] = a_rows[i];
  }
  for (int i = thread; i < N * depth; i += warpgroup_size) {
    const int row = i / depth, column = i % depth, inside = column % step_depth;
    memory.b[place_in_panel(row, column)] = b_rows[i];
    memory.narrow_b[column / step_depth]
                   [row * narrow_row_bytes + ((inside / 16) ^ (row / 4 % 2)) * 16 + inside % 16] =
        b_rows[i];
  }
  show_writes_to_async_units();
  __syncthreads();

  const int lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  typename Product::sum_type sum[N / 2] = {};
  const auto write = [&](typename Product::sum_type* to) {
    for (int i = 0; i < N / 2; ++i) {
      to[(row + (i & 2) * 4) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
    }
  };
  begin_products();
  const std::uint64_t a = describe_panels(shared_address(memory.a), 16);
  const std::uint64_t b = describe_panels(shared_address(memory.b), 16);
  for (int step = 0; step < depth / step_depth; ++step) {
    Product::scores(sum, a + panel_step(step * step_depth), b + panel_step(step * step_depth),
                    step != 0);
  }
  commit_products();
  wait_products<0>();
  keep_in_place(sum);
  write(scores);
  if constexpr (Registers) {
    for (auto& value : sum) value = 0;
    warpgroup_a words[depth / step_depth];
    for (int step = 0; step < depth / step_depth; ++step) {
      for (int w = 0; w < 4; ++w) {
        const std::uint8_t* const at =
            a_rows + (row + w % 2 * 8) * depth + step * step_depth + w / 2 * 16 + lane % 4 * 4;
        words[step].word[w] = *reinterpret_cast<const std::uint32_t*>(at);
      }
    }
    begin_products();
    for (int step = 0; step < depth / step_depth; ++step) {
      Product::sums_of(sum, words[step],
                       describe_narrow_panel(shared_address(memory.narrow_b[step])));
    }
    commit_products();
    wait_products<0>();
    keep_in_place(sum);
    write(sums);
  }
}

template <class Element, class A, class B, int N, bool Registers>
void expect_products() {
  SCOPED_TRACE(N);
  using product = warpgroup_product<Element, N>;
  using sum_type = typename product::sum_type;
  device_values<std::uint8_t> a(numbers<A>(rows * depth, 1)), b(numbers<B>(N * depth, 2));
  device_values<sum_type> scores{std::vector<sum_type>(rows * N)};
  device_values<sum_type> sums{std::vector<sum_type>(rows * N)};
  constexpr int bytes = static_cast<int>(sizeof(byte_memory<N>));
  ASSERT_EQ(cudaFuncSetAttribute(multiply<product, N, Registers>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            cudaSuccess);
  multiply<product, N, Registers>
      <<<1, warpgroup_size, bytes>>>(a.data(), b.data(), scores.data(), sums.data());
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  const std::vector<sum_type> found_scores = scores.fetch();
  const std::vector<sum_type> found_sums = sums.fetch();
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < N; ++j) {
      int sum = 0;
      for (int k = 0; k < depth; ++k) sum += number(i * depth + k, 1) * number(j * depth + k, 2);
      const auto at = static_cast<std::size_t>(i * N + j);
      ASSERT_EQ(found_scores[at], static_cast<sum_type>(sum)) << "score " << i << ", " << j;
      if (Registers) {
        ASSERT_EQ(found_sums[at], static_cast<sum_type>(sum)) << "sum " << i << ", " << j;
      }
    }
  }
}

TEST_F(prim_sm90_bytes, warpgroups_multiply_elements_of_8_bits) {
  expect_products<f8_e4m3, f8_e4m3, f8_e4m3, 64, true>();
  expect_products<f8_e4m3, f8_e4m3, f8_e4m3, 96, true>();
  expect_products<f8_e4m3, f8_e4m3, f8_e4m3, 128, true>();
  expect_products<f8_e4m3, f8_e4m3, f8_e4m3, 192, true>();
  expect_products<f8_e4m3, f8_e4m3, f8_e4m3, 256, true>();
  expect_products<float8_pair<f8_e5m2, f8_e5m2>, f8_e5m2, f8_e5m2, 96, false>();
  expect_products<float8_pair<f8_e5m2, f8_e4m3>, f8_e5m2, f8_e4m3, 96, false>();
  expect_products<float8_pair<f8_e4m3, f8_e5m2>, f8_e4m3, f8_e5m2, 96, false>();
  expect_products<std::int8_t, std::int8_t, std::int8_t, 128, false>();
  expect_products<std::int8_t, std::int8_t, std::int8_t, 192, false>();
}

constexpr int blocks_side_by_side = 4;

struct seen_of_others {
  std::uint32_t number, count;
  float2 of_next;
  std::uint64_t of_previous;
};

/// Each block reads what the next one of its cluster has, stores a number in that one's memory, and
/// waits until it has been stored to, and until all have arrived at its second barrier.
__global__ void __cluster_dims__(blocks_side_by_side, 1, 1) reach_others(seen_of_others* found) {
  __shared__ float2 pair;
  __shared__ std::uint64_t stored, of_store, of_blocks;
  const std::uint32_t number = block_in_cluster();
  const std::uint32_t next = (number + 1) % blocks_of_cluster();
  const auto here = static_cast<float>(blockIdx.x);
  if (threadIdx.x == 0) {
    pair = make_float2(here, -2.0f * here);
    stored = 0;
    init_barrier(shared_address(&of_store), 1);
    init_barrier(shared_address(&of_blocks), blocks_side_by_side);
    arrive_expecting(shared_address(&of_store), sizeof stored);
    publish_barriers();
  }
  wait_for_cluster();
  if (threadIdx.x == 0) {
    seen_of_others& mine = found[blockIdx.x];
    mine.number = number;
    mine.count = blocks_of_cluster();
    mine.of_next = load_of_block(shared_address(&pair), next);
    store_at_block(shared_address(&stored), 1000 + blockIdx.x, shared_address(&of_store), next);
    wait_for_phase(shared_address(&of_store), 0);
    mine.of_previous = *static_cast<volatile std::uint64_t*>(&stored);
    for (std::uint32_t block = 0; block < blocks_of_cluster(); ++block) {
      arrive_at_block(shared_address(&of_blocks), block);
    }
    wait_for_phase(shared_address(&of_blocks), 0);
  }
  __syncwarp();
  arrive_at_cluster();
  wait_for_arrivals();
}

TEST_F(prim_sm90_bytes, blocks_of_a_cluster_reach_each_other) {
  constexpr unsigned blocks = 3 * blocks_side_by_side;
  device_values<seen_of_others> found{std::vector<seen_of_others>(blocks)};
  reach_others<<<blocks, 64>>>(found.data());
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  const auto got = found.fetch();
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned first = block / blocks_side_by_side * blocks_side_by_side;
    const unsigned number = block - first;
    const auto next = static_cast<float>(first + (number + 1) % blocks_side_by_side);
    EXPECT_EQ(got[block].number, number);
    EXPECT_EQ(got[block].count, static_cast<std::uint32_t>(blocks_side_by_side));
    EXPECT_EQ(got[block].of_next.x, next) << block;
    EXPECT_EQ(got[block].of_next.y, -2.0f * next) << block;
    EXPECT_EQ(got[block].of_previous,
              1000 + first + (number + blocks_side_by_side - 1) % blocks_side_by_side)
        << block;
  }
}

}  // namespace
