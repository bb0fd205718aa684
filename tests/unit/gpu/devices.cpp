// Devices: facts, texts, memory and clocks.
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/key.hpp>

#include "pretended_gpu.hpp"

namespace tessera::testing {
namespace {

class gpu_devices : public ::testing::Test {
 protected:
  void SetUp() override { gpus.reset(); }
  pretended_gpus& gpus = pretended_gpus::all();
};

TEST_F(gpu_devices, AreFoundByTheirNumber) {
  EXPECT_EQ(cuda_device_count(), 2);
  const auto second = find_device({device_kind::cuda, 1});
  ASSERT_TRUE(second) << second.message();
  EXPECT_EQ((*second)->product_name(), "NVIDIA H200");
  EXPECT_EQ((*second)->id(), (device_id{device_kind::cuda, 1}));
  EXPECT_EQ(*second, *find_device({device_kind::cuda, 1})) << "facts stay where they are";
  EXPECT_EQ(*find_device({}), &this_device());
  EXPECT_EQ(find_device({device_kind::cuda, -1}).message(),
            "cuda:-1: this process sees 2 CUDA devices");
  EXPECT_EQ(find_device({device_kind::cpu, 1}).message(),
            "device: is cpu:1, must be cpu:0 or cuda: and a number from 0");
}

TEST_F(gpu_devices, HaveTextsBothWays) {
  EXPECT_EQ(text_of({}), "cpu:0");
  EXPECT_EQ(text_of({device_kind::cuda, 12}), "cuda:12");
  EXPECT_EQ(device_named("cpu"), device_id{});
  EXPECT_EQ(device_named("cpu:0"), device_id{});
  EXPECT_EQ(device_named("cuda"), (device_id{device_kind::cuda, 0}));
  EXPECT_EQ(device_named("cuda:3"), (device_id{device_kind::cuda, 3}));
  for (const std::string_view wrong : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:1",
                                       "cuda:", "cuda:99999999999", ":0", "CUDA"}) {
    EXPECT_EQ(device_named(wrong), std::nullopt) << wrong;
  }
}

TEST_F(gpu_devices, HaveAClassThatTellsProductsApart) {
  EXPECT_EQ(device_class_of(h200()).view(), "cuda_cc90.sms=132.l2=60M.shared=227K.memory=4800G");
  EXPECT_EQ(device_class_of(support::h100()).view(),
            "cuda_cc90.sms=132.l2=50M.shared=227K.memory=3400G");
  device_facts second = h200();
  second.ordinal = 1;
  EXPECT_EQ(device_class_of(second).view(), device_class_of(h200()).view());
}

TEST_F(gpu_devices, RunRowsOfTheirKindOnly) {
  EXPECT_TRUE(h200().runs(backend::cuda_sm80));
  EXPECT_TRUE(h200().runs(backend::cuda_sm90));
  EXPECT_FALSE(support::a100().runs(backend::cuda_sm90));
  EXPECT_FALSE(support::some_gpu("NVIDIA B200", 100).runs(backend::cuda_sm90))
      << "code for sm_90a runs on 9.0 alone";
  EXPECT_FALSE(h200().runs(backend::cpu_generic));
  EXPECT_FALSE(this_device().runs(backend::cuda_sm80));
  const device_facts old = support::t4();
  EXPECT_FALSE(old.runs(backend::cuda_sm80));
  EXPECT_FALSE(old.runs(backend::cpu_generic));
}

TEST_F(gpu_devices, LendMemoryInTheOrderOfAStream) {
  const device_id second{device_kind::cuda, 1};
  int mark = 0;
  {
    auto memory = device_buffer::allocate(second, 1000, &mark);
    ASSERT_TRUE(memory) << memory.message();
    EXPECT_EQ(memory->size(), 1000u);
    EXPECT_EQ(gpus.live.at(memory->data()).device, 1);
    device_buffer moved = *std::move(memory);
    ASSERT_TRUE(fill_memory(second, moved.data(), 0x5A, 1000));
    std::string back(1000, ' ');
    ASSERT_TRUE(copy_memory(second, back.data(), moved.data(), 1000));
    EXPECT_EQ(back, std::string(1000, 'Z'));
    EXPECT_TRUE(gpus.given_back.empty());
  }
  ASSERT_EQ(gpus.given_back.size(), 1u);
  EXPECT_EQ(gpus.given_back.front().stream, &mark);
  EXPECT_EQ(gpus.current, 0);
  EXPECT_EQ(device_buffer::allocate({}, 8).message(),
            "device: is cpu:0, must be a GPU: cuda:0, ...");
}

TEST_F(gpu_devices, HaveClocks) {
  const device_id first{device_kind::cuda, 0};
  const auto stream = device_stream::make(first);
  ASSERT_TRUE(stream);
  auto timer = device_timer::make(first);
  ASSERT_TRUE(timer);
  EXPECT_TRUE(timer->start(stream->handle()));
  pretended_gpus::all().clock += 0.5;
  EXPECT_TRUE(timer->stop(stream->handle()));
  EXPECT_EQ(*timer->seconds(), 0.5);
  EXPECT_EQ(find_cuda_versions().driver, 13010);
}

TEST_F(gpu_devices, AreCurrentWhileSomethingIsDoneThere) {
  const device_id second{device_kind::cuda, 1};
  int current = 0;
  EXPECT_TRUE(with_device(second, [&] {
    current = pretended_gpus::all().current;
    return status();
  }));
  EXPECT_EQ(current, 1);
  EXPECT_EQ(pretended_gpus::all().current, 0);
  const status refused = with_device(second, [] { return status(status_code::io, "no"); });
  EXPECT_EQ(refused.message(), "no");
  EXPECT_EQ(with_device({}, [] { return status(); }).message(),
            "device: is cpu:0, must be a GPU: cuda:0, ...");
}

}  // namespace
}  // namespace tessera::testing
