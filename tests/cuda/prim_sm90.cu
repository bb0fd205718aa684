// A device test per piece of prim/cuda that needs compute capability 9.0: each kernel writes what
// the piece computes, and the host compares it with the plain definition.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/box_store.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/tile_counter.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>
#include <tessera/spec/dtype.hpp>

#include "tests/cuda/device_values.hpp"
#include "tests/cuda/sm90_pieces.hpp"

namespace {

using namespace tessera::prim::cuda;
using tessera::bf16;
using tessera::f16;
using tessera::device_test::device_values;

using prim_sm90 = tessera::device_test::sm90_pieces;

/// Small numbers, whose products and sums f32 holds exactly.
float number_at(int i, int salt) {
  return static_cast<float>((i * 7 + salt) % 13 - 6) * 0.5f;
}
template <class Element>
std::vector<std::uint16_t> numbers(int count, int salt) {
  std::vector<std::uint16_t> bits;
  for (int i = 0; i < count; ++i) bits.push_back(Element(number_at(i, salt)).bits);
  return bits;
}

/// A matrix of `rows` rows of `columns`, copied in boxes of `box_rows` rows and 64 columns.
boxed_tensor matrix(const std::uint16_t* data, int rows, int columns, int box_rows) {
  return {data, {columns, rows, 1, 1}, {1, columns, 0, 0}, {panel_columns, box_rows, 1, 1}};
}

template <int N>
constexpr int panels_of = (N + panel_columns - 1) / panel_columns;

constexpr int depth = 64;

template <int N>
struct product_memory {
  alignas(1024) unsigned char a[64 * panel_row_bytes];
  alignas(1024) unsigned char transposed_b[N * panel_row_bytes];
  alignas(1024) unsigned char b[panels_of<N>][depth * panel_row_bytes];
  std::uint64_t arrived;
};

struct product_maps {
  CUtensorMap a, transposed_b, b;
};

/// scores = A Bt^T and sums = A B, with A [64, 64], Bt [N, 64] and B [64, N].
template <class Element, int N>
__global__ void multiply(const __grid_constant__ product_maps maps, const std::uint16_t* a_rows,
                         float* scores, float* sums) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<product_memory<N>*>(bytes);
  const std::uint32_t arrived = shared_address(&memory.arrived);
  if (threadIdx.x == 0) {
    init_barrier(arrived, 1);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(arrived, sizeof memory.a + sizeof memory.transposed_b + sizeof memory.b);
    copy_box(shared_address(memory.a), maps.a, arrived, {0, 0, 0, 0}, cache_hint::evict_first);
    copy_box(shared_address(memory.transposed_b), maps.transposed_b, arrived, {0, 0, 0, 0},
             cache_hint::evict_last);
    for (int panel = 0; panel < panels_of<N>; ++panel) {
      copy_box(shared_address(memory.b[panel]), maps.b, arrived, {panel * panel_columns, 0, 0, 0},
               cache_hint::evict_last);
    }
  }
  wait_for_phase(arrived, 0);

  using product = warpgroup_product<Element, N>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const auto write = [&](const float(&sum)[N / 2], float* to) {
    for (int i = 0; i < N / 2; ++i) {
      to[(row + (i & 2) * 4) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
    }
  };
  float sum[N / 2] = {};
  begin_products();
  const std::uint64_t a = describe_panels(shared_address(memory.a), 16);
  const std::uint64_t bt = describe_panels(shared_address(memory.transposed_b), 16);
  for (int step = 0; step < depth / 16; ++step) {
    product::scores(sum, a + panel_step(step * 32), bt + panel_step(step * 32), step != 0);
  }
  commit_products();
  wait_products<0>();
  keep_in_place(sum);
  write(sum, scores);

  for (float& value : sum) value = 0.0f;
  const std::uint64_t b =
      describe_panels(shared_address(memory.b), static_cast<std::uint32_t>(sizeof memory.b[0]));
  warpgroup_a words[depth / 16];
  for (int step = 0; step < depth / 16; ++step) {
    for (int w = 0; w < 4; ++w) {
      const int at = (row + w % 2 * 8) * depth + step * 16 + w / 2 * 8 + lane % 4 * 2;
      words[step].word[w] = a_rows[at] | static_cast<std::uint32_t>(a_rows[at + 1]) << 16;
    }
  }
  begin_products();
  for (int step = 0; step < depth / 16; ++step) {
    product::sums_of(sum, words[step], b + panel_step(step * 16 * panel_row_bytes));
  }
  commit_products();
  wait_products<0>();
  keep_in_place(sum);
  write(sum, sums);
}

template <class Element, int N>
void expect_products() {
  SCOPED_TRACE(N);
  device_values<std::uint16_t> a(numbers<Element>(64 * depth, 1));
  device_values<std::uint16_t> bt(numbers<Element>(N * depth, 2));
  device_values<std::uint16_t> b(numbers<Element>(depth * N, 3));
  device_values<float> scores{std::vector<float>(64 * N)};
  device_values<float> sums{std::vector<float>(64 * N)};
  product_maps maps{};
  ASSERT_TRUE(make_tensor_map(maps.a, matrix(a.data(), 64, depth, 64)));
  ASSERT_TRUE(make_tensor_map(maps.transposed_b, matrix(bt.data(), N, depth, N)));
  ASSERT_TRUE(make_tensor_map(maps.b, matrix(b.data(), depth, N, depth)));
  constexpr int bytes = static_cast<int>(sizeof(product_memory<N>));
  ASSERT_EQ(cudaFuncSetAttribute(multiply<Element, N>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 bytes),
            cudaSuccess);
  multiply<Element, N><<<1, warpgroup_size, bytes>>>(maps, a.data(), scores.data(), sums.data());
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  const std::vector<float> found_scores = scores.fetch();
  const std::vector<float> found_sums = sums.fetch();
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < N; ++j) {
      float score = 0;
      float sum = 0;
      for (int k = 0; k < depth; ++k) {
        score += number_at(i * depth + k, 1) * number_at(j * depth + k, 2);
        sum += number_at(i * depth + k, 1) * number_at(k * N + j, 3);
      }
      const auto at = static_cast<std::size_t>(i * N + j);
      ASSERT_EQ(found_scores[at], score) << "score " << i << ", " << j;
      ASSERT_EQ(found_sums[at], sum) << "sum " << i << ", " << j;
    }
  }
}

TEST_F(prim_sm90, warpgroups_multiply_panels_and_registers) {
  expect_products<bf16, 64>();
  expect_products<bf16, 80>();
  expect_products<bf16, 96>();
  expect_products<bf16, 112>();
  expect_products<bf16, 128>();
  expect_products<bf16, 192>();
  expect_products<bf16, 256>();
  expect_products<f16, 64>();
  expect_products<f16, 80>();
  expect_products<f16, 256>();
}

constexpr int ring_stages = 3;
constexpr int ring_rows = 16;
constexpr int ring_consumers = 2;

struct ring_memory {
  alignas(1024) unsigned char tile[ring_stages][ring_rows * panel_row_bytes];
  ring_barriers<ring_stages> barriers;
};

/// Warp 0 brings tiles of 16 rows of a panel; each warpgroup behind the first adds one to what it
/// finds and writes its half of the rows. Registers change hands on the way.
__global__ void __launch_bounds__(warpgroup_size*(ring_consumers + 1), 1)
    pass_through_ring(const __grid_constant__ CUtensorMap map, int tiles, std::uint16_t* to) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<ring_memory*>(bytes);
  const std::uint32_t barriers = shared_address(&memory.barriers);
  if (threadIdx.x == 0) {
    memory.barriers.init(1, ring_consumers * 4);
    publish_barriers();
  }
  __syncthreads();
  ring_place<ring_stages> place;
  const int warpgroup = warpgroup_index();
  if (warpgroup == 0) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < tiles; ++tile) {
      place.wait_empty(barriers);
      arrive_expecting(place.full(barriers), sizeof memory.tile[0]);
      copy_box(shared_address(memory.tile[place.stage()]), map, place.full(barriers),
               {0, 0, tile * ring_rows, 0}, cache_hint::evict_first);
      place.advance();
    }
    return;
  }
  take_registers<160>();
  const int thread = static_cast<int>(threadIdx.x) % warpgroup_size;
  constexpr int share = ring_rows / ring_consumers;
  for (int tile = 0; tile < tiles; ++tile) {
    place.wait_full(barriers);
    for (int i = thread; i < share * panel_columns; i += warpgroup_size) {
      const int row = (warpgroup - 1) * share + i / panel_columns;
      const int column = i % panel_columns;
      const int at = row * panel_row_bytes + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
      const auto* found = reinterpret_cast<const std::uint16_t*>(memory.tile[place.stage()] + at);
      to[(tile * ring_rows + row) * panel_columns + column] =
          static_cast<std::uint16_t>(*found + 1);
    }
    __syncwarp();
    if (thread % 32 == 0) place.release(barriers);
    place.advance();
  }
}

TEST_F(prim_sm90, tiles_go_through_a_ring_of_barriers) {
  // 40 columns of 150 tokens with two heads, of which the second is copied; what is missing in
  // rows and columns arrives as zeros.
  constexpr int columns = 40, tokens = 150, heads = 2, tiles = 11;
  std::vector<std::uint16_t> values(columns * tokens * heads);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i + 1);
  device_values<std::uint16_t> from(values);
  device_values<std::uint16_t> to{std::vector<std::uint16_t>(tiles * ring_rows * panel_columns)};
  CUtensorMap map{};
  ASSERT_TRUE(make_tensor_map(map, {from.data() + columns,
                                    {columns, 1, tokens, 1},
                                    {1, -7, columns * heads, -9},
                                    {panel_columns, 1, ring_rows, 1}}));
  constexpr int bytes = static_cast<int>(sizeof(ring_memory));
  pass_through_ring<<<1, warpgroup_size*(ring_consumers + 1), bytes>>>(map, tiles, to.data());
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  const std::vector<std::uint16_t> found = to.fetch();
  for (int token = 0; token < tiles * ring_rows; ++token) {
    for (int column = 0; column < panel_columns; ++column) {
      const bool there = token < tokens && column < columns;
      const int value = there ? (token * heads + 1) * columns + column + 1 : 0;
      ASSERT_EQ(found[static_cast<std::size_t>(token * panel_columns + column)], value + 1)
          << token << ", " << column;
    }
  }
}

constexpr int stored_rows = 16;

/// Writes row * 64 + column + 1 of a panel, and stores the box from `first_row` on.
__global__ void store_panel(const __grid_constant__ CUtensorMap map, int first_row) {
  __shared__ __align__(1024) unsigned char panel[stored_rows * panel_row_bytes];
  for (int i = static_cast<int>(threadIdx.x); i < stored_rows * panel_columns; i += 32) {
    const int row = i / panel_columns;
    const int column = i % panel_columns;
    const int at = row * panel_row_bytes + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
    *reinterpret_cast<std::uint16_t*>(panel + at) = static_cast<std::uint16_t>(i + 1);
  }
  show_writes_to_async_units();
  __syncwarp();
  if (threadIdx.x != 0) return;
  store_box(map, shared_address(panel), {0, 0, first_row, 0});
  commit_stores();
  wait_for_reads_of_stores();
}

TEST_F(prim_sm90, stores_of_boxes_leave_what_is_outside_alone) {
  // The second head of 20 tokens with 40 columns, whose rows are 48 apart.
  constexpr int columns = 40, stride = 48, tokens = 20, heads = 2;
  constexpr std::uint16_t untouched = 7777;
  for (const int first : {0, 3, 12}) {
    device_values<std::uint16_t> to{
        std::vector<std::uint16_t>(stride * heads * (tokens + stored_rows), untouched)};
    CUtensorMap map{};
    ASSERT_TRUE(make_tensor_map(map, {to.data() + stride,
                                      {columns, 1, tokens, 1},
                                      {1, stride, stride * heads, 16},
                                      {panel_columns, 1, stored_rows, 1}}));
    store_panel<<<1, 32>>>(map, first);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    const std::vector<std::uint16_t> found = to.fetch();
    for (int i = 0; i < static_cast<int>(found.size()); ++i) {
      const int column = i % stride, row = i / stride / heads - first;
      const bool stored = i / stride % heads == 1 && column < columns && row >= 0 &&
                          row < stored_rows && row + first < tokens;
      const int value = stored ? row * panel_columns + column + 1 : untouched;
      ASSERT_EQ(found[static_cast<std::size_t>(i)], value) << i << ", first " << first;
    }
  }
}

TEST_F(prim_sm90, tensors_that_copies_cannot_address_have_no_map) {
  device_values<std::uint16_t> from{std::vector<std::uint16_t>(4096)};
  CUtensorMap map{};
  const boxed_tensor plain{from.data(), {64, 2, 8, 2}, {1, 64, 128, 1024}, {64, 1, 8, 1}};
  EXPECT_TRUE(make_tensor_map(map, plain));
  boxed_tensor other = plain;
  other.stride[2] = -128;
  EXPECT_FALSE(make_tensor_map(map, other)) << "a negative stride";
  other = plain;
  other.stride[1] = 60;
  EXPECT_FALSE(make_tensor_map(map, other)) << "a stride that is no multiple of 16 bytes";
  other = plain;
  other.data = from.data() + 1;
  EXPECT_FALSE(make_tensor_map(map, other)) << "an address that is no multiple of 16";
  other = plain;
  other.extent[2] = 0;
  EXPECT_FALSE(make_tensor_map(map, other)) << "nothing to copy";
}

__global__ void take_tiles(unsigned* word, int tiles, unsigned* taken) {
  const tile_counter counter(word, tiles);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile = counter.take()) {
    atomicAdd(taken + tile, 1u);
  }
}

TEST_F(prim_sm90, every_tile_is_taken_once_a_launch) {
  for (const int tiles : {7, 8, 1000}) {
    device_values<unsigned> word{std::vector<unsigned>(1)};
    device_values<unsigned> taken{std::vector<unsigned>(static_cast<std::size_t>(tiles))};
    constexpr unsigned launches = 5;
    for (unsigned launch = 0; launch < launches; ++launch) {
      take_tiles<<<7, 1>>>(word.data(), tiles, taken.data());
    }
    EXPECT_EQ(taken.fetch(), std::vector<unsigned>(static_cast<std::size_t>(tiles), launches));
    EXPECT_EQ(word.fetch()[0], 0u) << "ready for the next launch";
  }
}

}  // namespace
