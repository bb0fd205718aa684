// Devices of a process: each call runs where its tensors lie, what cannot be is refused in words.
#include <array>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/device_facts.hpp>

#include "tests/cuda/device_data.hpp"

namespace tessera::device_test {
namespace {

int current_device() {
  int device = -1;
  require(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

TEST(devices, each_runs_the_calls_whose_tensors_it_holds) {
  const int count = cuda_device_count();
  if (count < 2) GTEST_SKIP() << "this machine has " << count << " CUDA device";
  for (int ordinal = count - 1; ordinal >= 0; --ordinal) {
    for (const named_call& call : various_calls()) {
      SCOPED_TRACE(std::string(call.name) + " on " + std::to_string(ordinal));
      require(cudaSetDevice(ordinal), "cudaSetDevice");
      const stream stream;
      device_data data(call.call, {device_kind::cuda, ordinal});
      data.send(stream.handle());
      require(cudaSetDevice(0), "cudaSetDevice");
      const auto plan = data.plan({.stream = stream.handle()});
      ASSERT_TRUE(plan) << plan.message();
      EXPECT_EQ(plan->device(), (device_id{device_kind::cuda, ordinal}));
      const status planned = plan->run(data.args());
      ASSERT_TRUE(planned) << planned.message();
      EXPECT_EQ(data.complaints(stream.handle()), "");
      data.send(stream.handle());
      const status done = flash_attention(data.args(), data.options(), {.stream = stream.handle()});
      ASSERT_TRUE(done) << done.message();
      EXPECT_EQ(data.complaints(stream.handle()), "");
      EXPECT_EQ(current_device(), 0) << "the current device was changed";
    }
  }
}

TEST(devices, tensors_on_different_ones_are_refused_with_both_names) {
  device_data data(various_calls()[0].call);
  for (const device_id other : {device_id{device_kind::cpu, 0}, device_id{device_kind::cuda, 1}}) {
    flash_attention_args args = data.args();
    args.k.device = other;
    const status done = flash_attention(args, data.options());
    EXPECT_EQ(done.code(), status_code::invalid_argument) << done.message();
    EXPECT_NE(done.message().find("k: "), std::string::npos) << done.message();
    EXPECT_NE(done.message().find(text_of(first_device)), std::string::npos) << done.message();
    EXPECT_NE(done.message().find(text_of(other)), std::string::npos) << done.message();
  }
}

TEST(devices, one_that_is_not_there_is_refused_by_name) {
  device_data data(various_calls()[0].call);
  const device_id absent{device_kind::cuda, cuda_device_count() + 3};
  const status done =
      flash_attention(said_to_be_on(absent, data.args(), first_device), data.options());
  ASSERT_FALSE(done);
  EXPECT_NE(done.message().find(text_of(absent)), std::string::npos) << done.message();
  const auto plan =
      tessera::plan(problem_of(data.args(), data.options(), data.op()), {.device = absent});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.message().find(text_of(absent)), std::string::npos) << plan.message();
}

TEST(devices, a_row_of_the_cpu_is_refused_for_tensors_of_a_gpu) {
  device_data data(various_calls()[0].call);
  const status done = flash_attention(data.args(), data.options(),
                                      {.row = "attention.cpu_generic.bf16.dany.every.128x64"});
  EXPECT_FALSE(done);
  EXPECT_FALSE(done.message().empty());
}

// Facts that kernels and the cost model are cut by.
TEST(devices, say_what_the_driver_says) {
  const auto facts = find_device(first_device);
  ASSERT_TRUE(facts) << facts.message();
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  EXPECT_EQ((*facts)->kind, device_kind::cuda);
  EXPECT_EQ((*facts)->product_name(), properties.name);
  EXPECT_EQ((*facts)->compute_capability, properties.major * 10 + properties.minor);
  EXPECT_EQ((*facts)->multiprocessors, properties.multiProcessorCount);
  EXPECT_EQ((*facts)->l2_bytes, properties.l2CacheSize);
  EXPECT_EQ((*facts)->shared_bytes_per_block, static_cast<int>(properties.sharedMemPerBlockOptin));
  EXPECT_EQ((*facts)->memory_bytes, static_cast<std::int64_t>(properties.totalGlobalMem));
  EXPECT_GT((*facts)->memory_bytes_per_second(), 1e11);
}

/// Spoils the context of this process with a read of memory that is not there, then calls again.
[[noreturn]] void call_after_a_fault() {
  device_data data(various_calls()[0].call);
  const stream stream;
  const auto plan = data.plan({.stream = stream.handle()});
  if (!plan) std::_Exit(10);
  flash_attention_args nowhere = data.args();
  nowhere.q.data = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
  if (!plan->run(nowhere)) std::_Exit(11);
  const cudaError_t fault = cudaStreamSynchronize(stream.handle());
  if (fault == cudaSuccess) std::_Exit(12);
  const status done = plan->run(data.args());
  if (done.code() != status_code::device) std::_Exit(13);
  if (done.message().find(cudaGetErrorString(fault)) == std::string::npos) std::_Exit(14);
  std::_Exit(0);
}

TEST(launch_errors, are_statuses_with_the_words_of_the_driver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(call_after_a_fault(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera::device_test
