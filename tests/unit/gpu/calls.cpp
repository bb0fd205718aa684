// Calls and plans on GPUs: where they run, in which stream, with whose memory.
#include <array>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/mean_pooling.hpp>

#include "pretended_gpu.hpp"
#include "tests/unit/api/small_call.hpp"

namespace tessera::testing {
namespace {

constexpr double close = 1e-4;

class gpu_calls : public ::testing::Test {
 protected:
  void SetUp() override { gpus.reset(); }
  void TearDown() override { EXPECT_TRUE(gpus.live.empty()) << "memory was not given back"; }

  /// Ours and no other, also where the library has rows for GPUs.
  context ours(std::string_view row = "attention.pretended") const {
    context where;
    where.row = row;
    where.rows = &own;
    where.stream = stream;
    return where;
  }
  context planned(int ordinal = 0) const {
    context where = ours();
    where.device = {device_kind::cuda, ordinal};
    return where;
  }

  pretended_gpus& gpus = pretended_gpus::all();
  std::array<instance, 2> rows{pretended_row("attention.frugal", 0),
                               pretended_row("attention.pretended")};
  application_rows own{rows};
  small_call call{5, 9, 2, 16};
  int mark = 0;
  void* stream = &mark;
};

TEST_F(gpu_calls, RunWhereTheTensorsLieInTheStreamOfTheContext) {
  for (const int ordinal : {1, 0}) {
    call.out.assign(call.out.size(), -7.0f);
    const auto args = on_gpu(call.args(), ordinal);
    const status done = flash_attention(args, {}, ours());
    ASSERT_TRUE(done) << done.message();
    EXPECT_LT(call.error(), close);
    ASSERT_FALSE(gpus.launches.empty());
    const auto& last = gpus.launches.back();
    EXPECT_EQ(last.device, ordinal);
    EXPECT_EQ(last.where.stream, stream);
    EXPECT_EQ(last.where.threads, 132);
    EXPECT_EQ(gpus.current, 0) << "the application's device is current again";
  }
}

TEST_F(gpu_calls, TakeTheirMemoryInTheOrderOfTheStream) {
  ASSERT_TRUE(flash_attention(on_gpu(call.args(), 1), {}, ours()));
  ASSERT_EQ(gpus.given_back.size(), 1u);
  const auto& [memory, in] = gpus.given_back.front();
  EXPECT_EQ(memory.device, 1);
  EXPECT_EQ(memory.bytes, 4096u);
  EXPECT_EQ(memory.stream, stream);
  EXPECT_EQ(in, stream);
  EXPECT_FALSE(memory.for_all);
}

TEST_F(gpu_calls, TakeNoMemoryOfTheLibraryWhereTheCallerBringsSome) {
  alignas(256) std::array<std::byte, 4096> scratch;
  context where = ours();
  where.workspace = scratch;
  ASSERT_TRUE(flash_attention(on_gpu(call.args()), {}, where));
  EXPECT_TRUE(gpus.given_back.empty());
  EXPECT_EQ(gpus.launches.back().where.workspace, scratch.data());
  where.workspace = std::span(scratch).first(4095);
  const status done = flash_attention(on_gpu(call.args()), {}, where);
  EXPECT_EQ(done.code(), status_code::workspace);
  EXPECT_EQ(done.message(), "workspace: has 4095 bytes, 4096 are needed");
  EXPECT_EQ(gpus.launches.size(), 1u);
}

/// An allocator that counts.
struct counting_allocator {
  std::size_t bytes = 0;
  device_id device{};
  void* stream = nullptr;
  int taken = 0, given = 0;
  alignas(256) std::array<std::byte, 8192> memory{};

  static void* take(void* state, device_id where, std::size_t wanted, void* in) noexcept {
    auto& self = *static_cast<counting_allocator*>(state);
    self.bytes = wanted;
    self.device = where;
    self.stream = in;
    ++self.taken;
    return wanted <= self.memory.size() ? self.memory.data() : nullptr;
  }
  static void give(void* state, device_id, void*, std::size_t, void*) noexcept {
    ++static_cast<counting_allocator*>(state)->given;
  }
  workspace_allocator functions() { return {&take, &give, this}; }
};

TEST_F(gpu_calls, AskTheCallersAllocator) {
  counting_allocator mine;
  const workspace_allocator functions = mine.functions();
  context where = ours();
  where.allocator = &functions;
  ASSERT_TRUE(flash_attention(on_gpu(call.args(), 1), {}, where));
  EXPECT_EQ(mine.bytes, 4096u);
  EXPECT_EQ(mine.device, (device_id{device_kind::cuda, 1}));
  EXPECT_EQ(mine.stream, stream);
  EXPECT_EQ(mine.taken, 1);
  EXPECT_EQ(mine.given, 1);
  EXPECT_EQ(gpus.launches.back().where.workspace, mine.memory.data());
  where.device = {device_kind::cuda, 0};
  {
    const auto made = plan(problem_of(on_gpu(call.args())), where);
    ASSERT_TRUE(made) << made.message();
    EXPECT_EQ(mine.taken, 2);
    EXPECT_EQ(mine.given, 1);
    ASSERT_TRUE(made->run(on_gpu(call.args())));
  }
  EXPECT_EQ(mine.given, 2);
  EXPECT_TRUE(gpus.given_back.empty());
}

TEST_F(gpu_calls, AskTheCallersAllocatorOnTheCpuToo) {
  counting_allocator mine;
  const workspace_allocator functions = mine.functions();
  const context where{.threads = 1, .allocator = &functions};
  const status done = flash_attention(call.args(), {}, where);
  EXPECT_EQ(mine.taken, 1);
  EXPECT_EQ(mine.device, device_id{});
  if (mine.bytes > mine.memory.size()) {
    EXPECT_EQ(done.message(), "workspace: " + std::to_string(mine.bytes) +
                                  " bytes are needed, context.allocator gave none");
    EXPECT_EQ(mine.given, 0);
  } else {
    EXPECT_TRUE(done);
    EXPECT_EQ(mine.given, 1);
  }
}

TEST_F(gpu_calls, AllocateNothingWhileTheStreamIsCaptured) {
  gpus.captured.insert(stream);
  const status done = flash_attention(on_gpu(call.args()), {}, ours());
  EXPECT_EQ(done.code(), status_code::workspace);
  EXPECT_NE(done.message().find("4096 bytes are needed while the stream is captured"),
            std::string::npos)
      << done.message();
  EXPECT_TRUE(gpus.launches.empty());
  EXPECT_TRUE(flash_attention(on_gpu(call.args()), {}, ours("attention.frugal")));
  const auto made = plan(problem_of(on_gpu(call.args())), planned());
  ASSERT_TRUE(made) << made.message();
  const std::size_t held = gpus.live.size();
  EXPECT_EQ(held, 1u) << "a plan takes its memory when it is made";
  EXPECT_TRUE(made->run(on_gpu(call.args())));
  EXPECT_EQ(gpus.live.size(), held);
  EXPECT_TRUE(gpus.given_back.empty());
}

TEST_F(gpu_calls, SayWhatTheDriverSaid) {
  gpus.launch_failure = "kernel launch: an illegal memory access was encountered";
  const status done = flash_attention(on_gpu(call.args(), 1), {}, ours());
  EXPECT_EQ(done.code(), status_code::device);
  EXPECT_EQ(done.message(),
            "cuda:1 (NVIDIA H200): attention.pretended: kernel launch: an illegal memory access "
            "was encountered");
  gpus.prepare_failure = "no code for compute capability 9.0";
  EXPECT_EQ(flash_attention(on_gpu(call.args()), {}, ours()).message(),
            "cuda:0 (NVIDIA H200): attention.pretended: no code for compute capability 9.0");
  const auto made = plan(problem_of(on_gpu(call.args())), planned());
  ASSERT_FALSE(made) << "said when planned, not when run";
  EXPECT_EQ(made.message(),
            "cuda:0 (NVIDIA H200): attention.pretended: no code for compute capability 9.0");
}

TEST_F(gpu_calls, RefuseDevicesThatAreNotThere) {
  const status done = flash_attention(on_gpu(call.args(), 7), {}, ours());
  EXPECT_EQ(done.code(), status_code::device);
  EXPECT_EQ(done.message(), "cuda:7: this process sees 2 CUDA devices");
  EXPECT_EQ(plan(problem_of(on_gpu(call.args())), planned(2)).message(),
            "cuda:2: this process sees 2 CUDA devices");
}

TEST_F(gpu_calls, RefuseTensorsOnDifferentDevices) {
  auto args = on_gpu(call.args(), 1);
  args.v.device.ordinal = 0;
  EXPECT_EQ(flash_attention(args, {}, ours()).message(), "v: device is cuda:0, q has cuda:1");
  args = call.args();
  args.out.device = {device_kind::cuda, 0};
  EXPECT_EQ(flash_attention(args, {}, {}).message(), "out: device is cuda:0, q has cpu:0");
  args = on_gpu(call.args(), -1);
  EXPECT_EQ(flash_attention(args, {}, {}).message(),
            "q: device is cuda:-1, must be cpu:0 or cuda: and a number from 0");
}

TEST_F(gpu_calls, TakeNoStreamOnTheCpu) {
  context where;
  where.stream = stream;
  const std::string_view sentence =
      "stream: is given, and this call runs on the CPU, which has none";
  EXPECT_EQ(flash_attention(call.args(), {}, where).message(), sentence);
  EXPECT_EQ(plan(problem_of(call.args()), where).message(), sentence);
  const auto made = plan(problem_of(call.args()), {.threads = 1});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->run(call.args(), stream).message(), sentence);
  EXPECT_TRUE(made->run(call.args(), nullptr));
}

/// Lengths in a GPU's memory: nobody on the host may look.
TEST_F(gpu_calls, ReadNoLengthsFromDeviceMemory) {
  auto args = on_gpu(call.args());
  args.seqlens_k = view(static_cast<std::int32_t*>(nullptr) + 4, {1});
  args.seqlens_k.device = args.q.device;
  attention_kernel_args lowered;
  device_id device;
  const status done = lower(flash_op::flash_attention, args, {}, lowered, &device);
  EXPECT_TRUE(done) << done.message();
  EXPECT_EQ(device, args.q.device);
}

TEST_F(gpu_calls, SayThatThereAreNoRowsOfMeanPooling) {
  for (const instance& row : mean_pooling_registry()) {
    if (is_cuda(row.target)) GTEST_SKIP() << "this build has " << row.name;
  }
  std::vector<float> x(2 * 3 * 4);
  std::vector<float> out(2 * 4);
  mean_pooling_args args{.x = view(x.data(), {2, 3, 4}), .out = view(out.data(), {2, 4})};
  args.x.device = args.out.device = {device_kind::cuda, 0};
  const status done = mean_pooling(args);
  EXPECT_EQ(done.code(), status_code::no_row);
  EXPECT_NE(done.message().find("the row is for the CPU, the device is cuda:0"), std::string::npos)
      << done.message();
  const auto made =
      plan(problem_of(args, {}, mean_pooling_op::mean_pooling), {.device = {device_kind::cuda, 0}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), status_code::no_row);
  EXPECT_NE(made.message().find("the row is for the CPU, the device is cuda:0"), std::string::npos)
      << made.message();
}

}  // namespace
}  // namespace tessera::testing
