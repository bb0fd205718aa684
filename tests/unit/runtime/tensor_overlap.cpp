// share_memory against the definition: every pair of elements, byte by byte.
#include <cstdint>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_overlap.hpp>

namespace tessera::testing {
namespace {

std::set<std::int64_t> bytes_of(const tensor_view& view, const std::byte* base) {
  std::set<std::int64_t> bytes;
  const auto size = static_cast<std::int64_t>(size_of(view.type));
  const std::int64_t start = static_cast<const std::byte*>(view.data) - base;
  for (std::int64_t a = 0; a < view.extent[0]; ++a) {
    for (std::int64_t b = 0; b < view.extent[1]; ++b) {
      for (std::int64_t c = 0; c < view.extent[2]; ++c) {
        const std::int64_t element = a * view.stride[0] + b * view.stride[1] + c * view.stride[2];
        for (std::int64_t i = 0; i < size; ++i) bytes.insert(start + element * size + i);
      }
    }
  }
  return bytes;
}

TEST(ShareMemory, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  alignas(64) static std::byte memory[4096];
  constexpr dtype types[]{dtype::f32, dtype::bf16, dtype::u8, dtype::i64};
  const auto draw = [&] {
    tensor_view view;
    view.type = types[random() % 4];
    view.rank = 3;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      view.extent[axis] = 1 + static_cast<std::int64_t>(random() % 4);
      view.stride[axis] = static_cast<std::int64_t>(random() % 25) - 12;
    }
    view.data = memory + 2048 + 8 * (random() % 24);
    return view;
  };
  int shared = 0;
  int apart = 0;
  for (int round = 0; round < 20000; ++round) {
    const tensor_view a = draw();
    const tensor_view b = draw();
    const auto of_a = bytes_of(a, memory);
    bool expected = false;
    for (const std::int64_t number : bytes_of(b, memory))
      expected = expected || of_a.count(number) > 0;
    ASSERT_EQ(checks::share_memory(a, b), expected) << "round " << round;
    ASSERT_EQ(checks::share_memory(b, a), expected) << "round " << round;
    expected ? ++shared : ++apart;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(ShareMemory, DistinctElementsAreNeverMisjudged) {
  std::mt19937 random(8);
  static std::byte memory[4096];
  int distinct = 0;
  for (int round = 0; round < 20000; ++round) {
    tensor_view view;
    view.type = dtype::u8;
    view.rank = 3;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      view.extent[axis] = 1 + static_cast<std::int64_t>(random() % 4);
      view.stride[axis] = static_cast<std::int64_t>(random() % 25) - 12;
    }
    view.data = memory + 2048;
    status failure;
    if (!checks::has_distinct_elements("out", view, failure)) continue;
    ++distinct;
    EXPECT_EQ(bytes_of(view, memory).size(), static_cast<std::size_t>(view.elements()));
  }
  EXPECT_GT(distinct, 1000);
}

TEST(ShareMemory, GivesUpOnTheSafeSide) {
  // Strides without order: the search runs out of patience and says yes.
  checks::reachable_sums sums;
  for (const std::int64_t stride : {1000003, 999983, 999979, 999961, 999959}) {
    sums.add(2 * stride, 1000);
  }
  EXPECT_TRUE(sums.reach(2000000001, 2000000001, 100));
}

}  // namespace
}  // namespace tessera::testing
