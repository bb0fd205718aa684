// Splits of keys are merged by the last blocks to end, if their launch found words for its
// workspace, or by a second kernel. Nobody can tell which.
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cuda/arrival_table.hpp>

#include "tests/cuda/device_data.hpp"
#include "tests/cuda/graph.hpp"

namespace tessera::device_test {
namespace {

/// One token of each sequence; a row that no other test of this program uses up the places of.
support::flash_case tokens(int batch, int heads, std::int64_t keys, dtype type) {
  support::flash_case example;
  example.type = type;
  example.batch = batch;
  example.q_len = 1;
  example.kv_len = keys;
  example.q_heads = heads;
  example.kv_heads = 2;
  example.head_dim = example.v_head_dim = 64;
  example.wants_lse = true;
  example.poison = false;
  example.seed = 7;
  return example;
}

/// Few rows of many splits, which many blocks share, and rows of few splits.
std::vector<named_call> split_calls() {
  return {{"few_rows", tokens(1, 8, 3000, dtype::f16)},
          {"many_rows", tokens(80, 14, 600, dtype::bf16)}};
}

class splits : public testing::TestWithParam<named_call> {};

std::vector<double> bits_of(device_data& data) {
  std::vector<double> bits = reference::to_doubles(data.host().args().out);
  const std::vector<double> lse = reference::to_doubles(data.host().args().lse);
  bits.insert(bits.end(), lse.begin(), lse.end());
  return bits;
}

// Comes first: the other test uses up the places.
TEST_P(splits, are_merged_in_every_one_of_many_runs) {
  constexpr int runs = 300;
  const stream stream;
  device_data data(GetParam().call);
  const auto plan = data.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  data.send(stream.handle());
  for (int run = 0; run < runs; ++run) ASSERT_TRUE(plan->run(data.args()));
  EXPECT_EQ(data.complaints(stream.handle()), "");
  const std::vector<double> expected = bits_of(data);
  const graph recorded(stream.handle(), [&] {
    for (int run = 0; run < 3; ++run) static_cast<void>(plan->run(data.args()));
  });
  EXPECT_EQ(recorded.nodes().size(), 3u) << "the last blocks were to merge";
  for (int run = 0; run < 20; ++run) {
    data.send(stream.handle());
    recorded.launch(stream.handle());
    ASSERT_TRUE(data.fetch(stream.handle()));
    ASSERT_EQ(bits_of(data), expected);
  }
}

// What blocks read as soon as it is there must not be what a call before has left.
TEST_P(splits, are_those_of_their_own_call) {
  const stream stream;
  support::flash_case changed = GetParam().call;
  ++changed.seed;
  device_data first(GetParam().call), second(changed);
  device_data* const in_turn[] = {&first, &second};
  const auto plan = first.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  const device_bytes memory = allocate_on_device(plan->workspace_bytes());
  const std::span<std::byte> workspace(memory.get(), plan->workspace_bytes());
  for (device_data* data : in_turn) data->send(stream.handle());
  std::vector<double> expected[2];
  for (int run = 0; run < 100; ++run) {
    SCOPED_TRACE(run);
    device_data& data = *in_turn[run % 2];
    ASSERT_TRUE(plan->run(data.args(), workspace));
    if (run < 2) {
      ASSERT_EQ(data.complaints(stream.handle()), "");
      expected[run] = bits_of(data);
      continue;
    }
    ASSERT_TRUE(data.fetch(stream.handle()));
    ASSERT_EQ(bits_of(data), expected[run % 2]);
  }
  EXPECT_NE(expected[0], expected[1]);
}

/// Workspaces at many addresses, one over the other, full of ones.
class workspaces {
 public:
  static constexpr std::size_t count = 2 * prim::cuda::arrival_places;

  explicit workspaces(std::size_t bytes)
      : bytes_(bytes), memory_(allocate_on_device(bytes + count * step)) {
    require(cudaMemset(memory_.get(), 0xFF, bytes + count * step), "cudaMemset");
  }
  std::span<std::byte> at(std::size_t index) const {
    return {memory_.get() + index * step, bytes_};
  }

 private:
  static constexpr std::size_t step = 64;
  std::size_t bytes_;
  device_bytes memory_;
};

TEST_P(splits, have_the_same_bits_whoever_merges_them) {
  const stream stream;
  device_data data(GetParam().call);
  const auto plan = data.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  ASSERT_GT(plan->workspace_bytes(), 0u) << "the call was chosen for its splits";
  const workspaces memory(plan->workspace_bytes());
  const auto kernels_of = [&](std::span<std::byte> workspace) {
    status done;
    const graph recorded(stream.handle(), [&] { done = plan->run(data.args(), workspace); });
    EXPECT_TRUE(done) << done.message();
    return recorded.nodes().size();
  };
  EXPECT_EQ(kernels_of(memory.at(0)), 1u) << "the last blocks were to merge";
  std::vector<double> expected;
  for (std::size_t n = 0; n < memory.count; ++n) {
    SCOPED_TRACE(n);
    data.send(stream.handle());
    const status done = plan->run(data.args(), memory.at(n));
    ASSERT_TRUE(done) << done.message();
    if (n == 0) {
      ASSERT_EQ(data.complaints(stream.handle()), "");
      expected = bits_of(data);
      continue;
    }
    ASSERT_TRUE(data.fetch(stream.handle()));
    ASSERT_EQ(bits_of(data), expected);
  }
  EXPECT_EQ(kernels_of(memory.at(memory.count - 1)), 2u) << "places were to run out";
  EXPECT_EQ(kernels_of(memory.at(0)), 1u) << "a workspace was to keep its place";
}

/// Queries, or a key that all rows see, are NaN: also rows with sinks are, and no others.
TEST(rows_of_splits, that_see_nan_are_nan_beside_sinks) {
  const stream stream;
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f32}) {
    for (const bool in_key : {false, true}) {
      SCOPED_TRACE(std::string(name_of(type)) + (in_key ? " key" : " query"));
      support::flash_case call = tokens(2, 8, 3000, type);
      call.sink_count = 2;
      device_data data(call);
      const flash_attention_args& host = data.host().args();
      const tensor_view& view = in_key ? host.k : host.q;
      support::store(view, in_key ? 2100 * view.stride[1] : view.stride[2], HUGE_VAL - HUGE_VAL);
      const auto plan = data.plan({.stream = stream.handle()});
      ASSERT_TRUE(plan) << plan.message();
      data.send(stream.handle());
      ASSERT_TRUE(plan->run(data.args()));
      EXPECT_EQ(data.complaints(stream.handle()), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(calls, splits, testing::ValuesIn(split_calls()), name_of);

}  // namespace
}  // namespace tessera::device_test
