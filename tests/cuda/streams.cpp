// Streams and host threads: nothing waits for the device, runs in different streams do not disturb
// each other, and a plan's results do not depend on who else is running.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_data.hpp"

namespace tessera::device_test {
namespace {

/// Holds up a stream until it is opened, at most for ten seconds.
class gate {
 public:
  explicit gate(const stream& held) {
    require(cudaLaunchHostFunc(held.handle(), &wait, this), "cudaLaunchHostFunc");
  }
  ~gate() { open(); }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  void open() { open_.store(true); }

 private:
  static void CUDART_CB wait(void* self) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!static_cast<gate*>(self)->open_.load() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  std::atomic<bool> open_{false};
};

class streams : public testing::TestWithParam<named_call> {};

TEST_P(streams, calls_return_while_the_work_before_them_is_not_done) {
  device_data data(GetParam().call), other(GetParam().call);
  const stream held, open;
  const auto plan = data.plan({.stream = held.handle()});
  const auto plan_elsewhere = other.plan({.stream = open.handle()});
  ASSERT_TRUE(plan) << plan.message();
  ASSERT_TRUE(plan_elsewhere) << plan_elsewhere.message();
  // Once before, so that code and memory pools are there.
  ASSERT_TRUE(flash_attention(data.args(), data.options(), {.stream = held.handle()}));
  data.send(held.handle());
  other.send(open.handle());
  gate closed(held);
  const status once = flash_attention(data.args(), data.options(), {.stream = held.handle()});
  const status planned = plan->run(data.args());
  EXPECT_EQ(cudaStreamQuery(held.handle()), cudaErrorNotReady);
  const status elsewhere = plan_elsewhere->run(other.args());
  EXPECT_EQ(other.complaints(open.handle()), "");
  EXPECT_EQ(cudaStreamQuery(held.handle()), cudaErrorNotReady) << "another stream waited for it";
  closed.open();
  for (const status& status : {once, planned, elsewhere}) EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(data.complaints(held.handle()), "");
}

TEST_P(streams, a_run_in_another_stream_than_planned_uses_that_stream) {
  device_data data(GetParam().call);
  const stream planned, other;
  const auto plan = data.plan({.stream = planned.handle()});
  ASSERT_TRUE(plan) << plan.message();
  data.send(other.handle());
  gate closed(planned);
  const status done = plan->run(data.args(), other.handle());
  EXPECT_TRUE(done) << done.message();
  EXPECT_EQ(data.complaints(other.handle()), "");
  closed.open();
  planned.wait();
}

TEST_P(streams, the_callers_workspace_is_used_and_not_left) {
  device_data data(GetParam().call);
  const stream stream;
  const auto plan = data.plan({.stream = stream.handle()});
  ASSERT_TRUE(plan) << plan.message();
  const std::size_t bytes = plan->workspace_bytes();
  constexpr std::size_t margin = 4096;
  const device_bytes memory = allocate_on_device(bytes + margin);
  require(cudaMemset(memory.get(), 0xFF, bytes + margin), "cudaMemset");
  data.send(stream.handle());
  const status done = plan->run(data.args(), std::span(memory.get(), bytes));
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(data.complaints(stream.handle()), "");
  std::vector<std::byte> behind(margin);
  require(cudaMemcpy(behind.data(), memory.get() + bytes, margin, cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  EXPECT_EQ(behind, std::vector<std::byte>(margin, margin_byte));
  if (bytes < 64) return;
  data.send(stream.handle());
  const status refused = plan->run(data.args(), std::span(memory.get(), bytes - 1));
  EXPECT_EQ(refused.code(), status_code::workspace) << refused.message();
  stream.wait();
  ASSERT_TRUE(data.fetch(stream.handle()));
  EXPECT_TRUE(data.host().outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(calls, streams, testing::ValuesIn(various_calls()), name_of);

/// A stream with a call of its own, a plan for it and the right bits.
struct lane {
  stream own{};
  std::unique_ptr<device_data> data{};
  std::unique_ptr<flash_plan> plan{};
  std::vector<double> expected{};
};

std::vector<double> out_of(device_data& data) {
  return reference::to_doubles(data.host().args().out);
}

/// Runs the calls of one host thread: all its streams at once, planned and not in turn.
std::string complaints_of(std::array<lane, 4>& lanes, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (lane& lane : lanes) {
      lane.data->send(lane.own.handle());
    }
    for (lane& lane : lanes) {
      const status done = round % 2 == 0 ? lane.plan->run(lane.data->args())
                                         : flash_attention(lane.data->args(), lane.data->options(),
                                                           {.stream = lane.own.handle()});
      if (!done) return done.message();
    }
    for (lane& lane : lanes) {
      if (!lane.data->fetch(lane.own.handle())) return "memory outside the outputs was written";
      if (out_of(*lane.data) != lane.expected) return "other bits than alone";
    }
  }
  return "";
}

TEST(threads, eight_of_them_with_four_streams_each_get_the_bits_of_a_call_alone) {
  constexpr int threads = 8, rounds = 20;
  const std::vector<named_call> calls = various_calls();
  std::vector<std::array<lane, 4>> all(threads);
  std::size_t index = 0;
  for (auto& lanes : all) {
    for (lane& lane : lanes) {
      support::flash_case call = calls[index % calls.size()].call;
      call.seed += ++index;
      call.wants_dropout_mask = false;
      lane.data = std::make_unique<device_data>(call);
      auto plan = lane.data->plan({.stream = lane.own.handle()});
      ASSERT_TRUE(plan) << plan.message();
      lane.plan = std::make_unique<flash_plan>(*std::move(plan));
      lane.data->send(lane.own.handle());
      const status done = lane.plan->run(lane.data->args());
      ASSERT_TRUE(done) << done.message();
      ASSERT_EQ(lane.data->complaints(lane.own.handle()), "");
      lane.expected = out_of(*lane.data);
    }
  }
  std::vector<std::string> said(threads);
  std::vector<std::thread> running;
  for (std::size_t n = 0; n < said.size(); ++n) {
    running.emplace_back([&, n] { said[n] = complaints_of(all[n], rounds); });
  }
  for (std::thread& first : running) first.join();
  for (const std::string& text : said) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace tessera::device_test
