// Plans in CUDA graphs: captured before anything ran, replayed with other values and other lengths.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_data.hpp"
#include "tests/cuda/graph.hpp"

namespace tessera::device_test {
namespace {

/// Other lengths of the same sum, respectively within the same tensors.
void change_lengths(const flash_attention_args& host, int round) {
  const auto set = [](const tensor_view& view, std::vector<std::int64_t> values) {
    for (std::size_t n = 0; n < values.size(); ++n) {
      support::store(view, static_cast<std::int64_t>(n), static_cast<double>(values[n]));
    }
  };
  const std::int64_t first = 30 + 50 * round;
  if (host.cu_seqlens_q.present()) {
    set(host.cu_seqlens_q, {0, first, first, 200});
    set(host.cu_seqlens_k, {0, first, first, 200});
  }
  if (host.seqlens_k.present()) set(host.seqlens_k, {round == 0 ? 0 : 900 * round + 1, 3000});
}

class graphs : public testing::TestWithParam<named_call> {};

TEST_P(graphs, replay_with_other_values_and_lengths) {
  const stream stream;
  device_data data(GetParam().call);
  const auto plan = data.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  status done;
  const graph recorded(stream.handle(), [&] { done = plan->run(data.args()); });
  ASSERT_TRUE(done) << done.message();
  for (const cudaGraphNodeType type : recorded.nodes()) EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    data.change_values(static_cast<std::uint64_t>(round) + 5);
    change_lengths(data.host().args(), round);
    data.send(stream.handle());
    recorded.launch(stream.handle());
    EXPECT_EQ(data.complaints(stream.handle()), "");
  }
}

TEST_P(graphs, hold_several_runs_in_their_order) {
  // The second run reads what the first wrote as its q.
  const stream stream;
  device_data first(GetParam().call), second(GetParam().call);
  flash_attention_args chained = second.args();
  if (chained.q.extent != first.args().out.extent) GTEST_SKIP() << "out has another shape than q";
  chained.q = first.args().out;
  const auto plan = first.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  std::vector<status> done;
  const graph recorded(stream.handle(), [&] {
    done.push_back(plan->run(first.args()));
    done.push_back(plan->run(chained));
  });
  for (const status& status : done) ASSERT_TRUE(status) << status.message();
  first.send(stream.handle());
  second.send(stream.handle());
  recorded.launch(stream.handle());
  EXPECT_EQ(first.complaints(stream.handle()), "");
  ASSERT_TRUE(second.fetch(stream.handle()));
  flash_attention_args truth = second.host().args();
  truth.q = first.host().args().out;
  EXPECT_EQ(support::flash_expectation(truth, second.options()).complaints(), "");
}

INSTANTIATE_TEST_SUITE_P(calls, graphs, testing::ValuesIn(various_calls()), name_of);

// Memory cannot be taken while a stream is captured: the call says so and the capture goes on.
TEST(capture, refuses_a_call_that_would_take_memory) {
  const stream stream;
  device_data data(various_calls()[1].call);
  const auto plan = data.plan();
  ASSERT_TRUE(plan) << plan.message();
  ASSERT_GT(plan->workspace_bytes(), 0u) << "the call was chosen for its workspace";
  const device_bytes workspace = allocate_on_device(plan->workspace_bytes());
  status refused, done;
  const graph recorded(stream.handle(), [&] {
    refused = flash_attention(data.args(), data.options(), {.stream = stream.handle()});
    done = flash_attention(
        data.args(), data.options(),
        {.stream = stream.handle(), .workspace = {workspace.get(), plan->workspace_bytes()}});
  });
  EXPECT_EQ(refused.code(), status_code::workspace) << refused.message();
  EXPECT_NE(refused.message().find("captur"), std::string::npos) << refused.message();
  ASSERT_TRUE(done) << done.message();
  data.send(stream.handle());
  recorded.launch(stream.handle());
  EXPECT_EQ(data.complaints(stream.handle()), "");
}

}  // namespace
}  // namespace tessera::device_test
