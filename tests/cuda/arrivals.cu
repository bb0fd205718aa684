// Blocks that share the merging of splits: every part is merged once, by a block that sees what all
// have written, whether blocks wait for each other or not.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/prim/cuda/arrivals.hpp>

#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

using prim::cuda::arrivals_in;

constexpr int items = 300;
constexpr int most_parts = prim::cuda::arrivals::most_parts;
constexpr int most_wide_parts = prim::cuda::wide_arrivals::most_parts;

struct counted_call {
  int splits = 1;
  int parts = 1;
  long long patience = 0;
};

/// values: [items][splits], which a block adds its own to; sums: [items][parts], which the block
/// that merges a part adds all of them to; times: how often a part was merged.
template <class Word>
__global__ void count(counted_call call, Word* words, unsigned* values, unsigned* sums,
                      unsigned* times) {
  __shared__ unsigned merged;
  const int item = static_cast<int>(blockIdx.x);
  const int split = static_cast<int>(blockIdx.y);
  unsigned* const of_item = values + item * call.splits;
  if (threadIdx.x == 7) of_item[split] += static_cast<unsigned>(split) + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    merged = arrivals_in<Word>(words + item, call.splits, call.parts).arrive(call.patience);
  }
  __syncthreads();
  const int part = static_cast<int>(threadIdx.x);
  if (part >= call.parts || (merged >> part & 1) == 0) return;
  unsigned sum = 0;
  for (int s = 0; s < call.splits; ++s) sum += of_item[s];
  sums[item * call.parts + part] += sum;
  atomicAdd(times + item * call.parts + part, 1u);
}

/// Counted in words of one kind.
template <class Word>
void expect_every_part_once(const counted_call& call) {
  constexpr unsigned launches = 20;
  const auto splits = static_cast<unsigned>(call.splits);
  const auto parts = static_cast<std::size_t>(call.parts);
  device_values<Word> words{std::vector<Word>(items)};
  device_values<unsigned> values{std::vector<unsigned>(items * splits)};
  device_values<unsigned> sums{std::vector<unsigned>(items * parts)};
  device_values<unsigned> times{std::vector<unsigned>(items * parts)};
  for (unsigned launch = 0; launch < launches; ++launch) {
    count<<<dim3(items, splits), 32>>>(call, words.data(), values.data(), sums.data(),
                                       times.data());
  }
  for (const Word word : words.fetch()) {
    EXPECT_EQ(word, Word{launches} << arrivals_in<Word>::times_shift)
        << "nothing is left but the number of launches";
  }
  EXPECT_EQ(times.fetch(), std::vector<unsigned>(items * parts, launches));
  const unsigned of_launch = splits * (splits + 1) / 2;
  EXPECT_EQ(sums.fetch(),
            std::vector<unsigned>(items * parts, of_launch * launches * (launches + 1) / 2));
}

class arrivals_of_blocks : public testing::TestWithParam<counted_call> {};

TEST_P(arrivals_of_blocks, merge_every_part_once_and_see_every_split) {
  const counted_call call = GetParam();
  if (call.parts <= most_parts) expect_every_part_once<unsigned>(call);
  expect_every_part_once<unsigned long long>(call);
}

INSTANTIATE_TEST_SUITE_P(
    calls, arrivals_of_blocks,
    testing::Values(counted_call{2, 1, 0}, counted_call{2, 2, 1 << 15}, counted_call{7, 3, 0},
                    counted_call{7, 3, 200}, counted_call{7, 7, 1 << 15},
                    counted_call{47, most_parts, 0}, counted_call{47, most_parts, 500},
                    counted_call{47, most_parts, 1 << 15}, counted_call{47, most_wide_parts, 0},
                    counted_call{64, most_wide_parts, 1 << 15},
                    counted_call{schedule_sm80::most_splits, most_parts, 1 << 12},
                    counted_call{schedule_sm80::most_splits, most_wide_parts, 500}));

}  // namespace
}  // namespace tessera::device_test
