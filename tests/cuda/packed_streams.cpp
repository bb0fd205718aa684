// Products with packed weights under way in several streams at once, or one after the other without
// a wait: blocks that share a tile count what they have left of it in words of the device, or are
// pairs of a cluster, and wait for each other, also where there is no room for all of them yet.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_values.hpp"
#include "tests/cuda/graph.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

constexpr std::int64_t inputs_of_group = 64;

/// A product in memory of the device, with a stream of its own.
class packed_call {
 public:
  packed_call(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, std::uint64_t seed)
      : rows_(rows),
        outputs_(outputs),
        inputs_(inputs),
        random_(seed),
        x_(numbers(rows * inputs, -1.0, 1.0)),
        scales_(numbers(outputs * groups(), 0.5, 1.5)),
        zeros_(numbers(outputs * groups(), 0.0, 15.0)),
        codes_(words(outputs * inputs / 8)),
        out_(std::vector<float>(static_cast<std::size_t>(rows * outputs), NAN)) {}

  cudaStream_t handle() const { return stream_.handle(); }
  /// Before the first run.
  status plan_it() {
    auto planned =
        plan(problem_of(args(), options), {.device = first_device, .stream = stream_.handle()});
    if (planned) plan_ = std::make_unique<quantized_matmul_plan>(*std::move(planned));
    return planned.failure();
  }
  status run() { return plan_->run(args()); }
  /// The result, which is no longer there afterwards.
  std::vector<float> take() {
    stream_.wait();
    std::vector<float> sums = out_.fetch();
    EXPECT_EQ(cudaMemset(out_.data(), 0xFF, sums.size() * sizeof(float)), cudaSuccess);
    return sums;
  }

 private:
  static constexpr quantized_options options{.bits = 4, .group_size = inputs_of_group};

  std::int64_t groups() const { return inputs_ / inputs_of_group; }
  quantized_matmul_args args() {
    const auto there = [](auto* data, std::initializer_list<std::int64_t> shape) {
      return view(data, shape, {}, first_device);
    };
    return {.x = there(x_.data(), {rows_, inputs_}),
            .w_q = there(codes_.data(), {outputs_, inputs_ / 8}),
            .scales = there(scales_.data(), {outputs_, groups()}),
            .zeros = there(zeros_.data(), {outputs_, groups()}),
            .out = there(out_.data(), {rows_, outputs_})};
  }
  std::vector<bf16> numbers(std::int64_t count, double least, double most) {
    std::vector<bf16> all(static_cast<std::size_t>(count));
    for (bf16& number : all) {
      number = bf16(static_cast<float>(least + (most - least) * random_.uniform()));
    }
    return all;
  }
  std::vector<std::uint32_t> words(std::int64_t count) {
    std::vector<std::uint32_t> all(static_cast<std::size_t>(count));
    for (std::uint32_t& word : all) word = static_cast<std::uint32_t>(random_.bits());
    return all;
  }

  std::int64_t rows_, outputs_, inputs_;
  support::random_source random_;
  stream stream_;
  device_values<bf16> x_, scales_, zeros_;
  device_values<std::uint32_t> codes_;
  device_values<float> out_;
  std::unique_ptr<quantized_matmul_plan> plan_{};
};

/// Calls of few rows and many, which have most of the multiprocessors each; one is long, so that
/// blocks of others wait for room longer than those beside them wait for them.
std::vector<std::unique_ptr<packed_call>> packed_calls() {
  std::vector<std::unique_ptr<packed_call>> calls;
  std::uint64_t seed = 0;
  const auto add = [&](std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
    calls.push_back(std::make_unique<packed_call>(rows, outputs, inputs, ++seed));
  };
  add(1024, 4096, 8192);
  add(16, 16384, 1088);
  add(1, 10240, 2048);
  add(50, 16300, 576);
  add(300, 4090, 1024);
  add(200, 5000, 1024);
  add(16, 50000, 1088);
  return calls;
}

/// What a call gives that nothing runs beside.
std::vector<float> bits_alone(packed_call& call) {
  const status planned = call.plan_it();
  EXPECT_TRUE(planned) << planned.message();
  if (!planned) return {};
  const status done = call.run();
  EXPECT_TRUE(done) << done.message();
  return call.take();
}

TEST(packed_weights, in_streams_at_once_have_the_bits_of_a_call_alone) {
  constexpr int rounds = 40, runs = 5;
  const auto calls = packed_calls();
  std::vector<std::vector<float>> alone;
  for (const auto& call : calls) {
    alone.push_back(bits_alone(*call));
    ASSERT_FALSE(alone.back().empty());
    for (const float sum : alone.back()) ASSERT_FALSE(std::isnan(sum));
  }
  for (int round = 0; round < rounds; ++round) {
    for (int run = 0; run < runs; ++run) {
      for (const auto& call : calls) {
        const status done = call->run();
        ASSERT_TRUE(done) << done.message();
      }
    }
    for (std::size_t n = 0; n < calls.size(); ++n) {
      ASSERT_EQ(calls[n]->take(), alone[n]) << "call " << n << ", round " << round;
    }
  }
}

TEST(packed_weights, in_graphs_that_are_replayed_side_by_side_have_the_same_bits) {
  constexpr int runs = 4, replays = 10;
  const auto calls = packed_calls();
  std::vector<std::vector<float>> alone;
  std::vector<std::unique_ptr<graph>> graphs;
  for (const auto& call : calls) {
    alone.push_back(bits_alone(*call));
    ASSERT_FALSE(alone.back().empty());
    graphs.push_back(std::make_unique<graph>(call->handle(), [&] {
      for (int run = 0; run < runs; ++run) EXPECT_TRUE(call->run());
    }));
  }
  for (int replay = 0; replay < replays; ++replay) {
    for (std::size_t n = 0; n < calls.size(); ++n) graphs[n]->launch(calls[n]->handle());
  }
  for (std::size_t n = 0; n < calls.size(); ++n) ASSERT_EQ(calls[n]->take(), alone[n]) << n;
}

}  // namespace
}  // namespace tessera::device_test
