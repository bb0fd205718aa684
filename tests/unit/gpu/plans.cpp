// Plans on GPUs.
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>

#include "pretended_gpu.hpp"
#include "tests/unit/api/small_call.hpp"

namespace tessera::testing {
namespace {

constexpr double close = 1e-4;

class gpu_plans : public ::testing::Test {
 protected:
  void SetUp() override { gpus.reset(); }
  void TearDown() override { EXPECT_TRUE(gpus.live.empty()) << "memory was not given back"; }

  result<flash_plan> make(int ordinal = 0, std::string_view row = "attention.pretended",
                          bool unaligned = false) {
    context where;
    where.row = row;
    where.rows = &own;
    where.stream = stream;
    where.device = {device_kind::cuda, ordinal};
    flash_problem problem = problem_of(on_gpu(call.args(), ordinal));
    problem.unaligned = unaligned;
    return plan(problem, where);
  }

  pretended_gpus& gpus = pretended_gpus::all();
  std::array<instance, 2> rows{pretended_row("attention.frugal", 0),
                               pretended_row("attention.pretended")};
  application_rows own{rows};
  small_call call{5, 9, 2, 16};
  int marks[2] = {};
  void* stream = &marks[0];
  void* other = &marks[1];
};

TEST_F(gpu_plans, AreMadeReadyWhenTheyAreMade) {
  const auto made = make(1);
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(made->device(), (device_id{device_kind::cuda, 1}));
  EXPECT_EQ(made->threads(), 132);
  EXPECT_EQ(made->workspace_bytes(), 4096u);
  ASSERT_EQ(gpus.prepared.size(), 1u);
  EXPECT_EQ(gpus.prepared.front(), 1);
  ASSERT_EQ(gpus.live.size(), 1u);
  EXPECT_EQ(gpus.live.begin()->second.device, 1);
  EXPECT_TRUE(gpus.live.begin()->second.for_all);
  EXPECT_EQ(gpus.current, 0);
}

TEST_F(gpu_plans, RunInTheStreamTheyAreTold) {
  const auto made = make(1);
  ASSERT_TRUE(made) << made.message();
  const auto args = on_gpu(call.args(), 1);
  ASSERT_TRUE(made->run(args));
  EXPECT_EQ(gpus.launches.back().where.stream, stream);
  EXPECT_EQ(gpus.launches.back().device, 1);
  EXPECT_EQ(gpus.launches.back().where.workspace, gpus.live.begin()->first);
  EXPECT_LT(call.error(), close);
  ASSERT_TRUE(made->run(args, other));
  EXPECT_EQ(gpus.launches.back().where.stream, other);
  ASSERT_TRUE(made->run(args, nullptr));
  EXPECT_EQ(gpus.launches.back().where.stream, nullptr);
  alignas(256) std::array<std::byte, 4096> scratch;
  ASSERT_TRUE(made->run(args, scratch));
  EXPECT_EQ(gpus.launches.back().where.stream, stream);
  EXPECT_EQ(gpus.launches.back().where.workspace, scratch.data());
  ASSERT_TRUE(made->run(args, scratch, other));
  EXPECT_EQ(gpus.launches.back().where.stream, other);
  EXPECT_EQ(gpus.prepared.size(), 1u) << "runs make nothing ready";
  EXPECT_EQ(gpus.live.size(), 1u);
  EXPECT_TRUE(gpus.given_back.empty()) << "runs take no memory";
}

TEST_F(gpu_plans, WithoutScratchHaveNoMemory) {
  const auto made = make(0, "attention.frugal");
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(made->workspace_bytes(), 0u);
  EXPECT_TRUE(gpus.live.empty());
  EXPECT_TRUE(made->run(on_gpu(call.args()), other));
}

TEST_F(gpu_plans, SayThatThereIsNotThatMuchMemory) {
  gpus.out_of_memory = true;
  const auto made = make();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), status_code::workspace);
}

TEST_F(gpu_plans, RefuseTensorsElsewhere) {
  const auto made = make(1);
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(made->run(on_gpu(call.args(), 0)).message(),
            "q: device is cuda:0, the plan has cuda:1");
  EXPECT_EQ(made->run(call.args()).message(), "q: device is cpu:0, the plan has cuda:1");
  auto mixed = on_gpu(call.args(), 1);
  mixed.out.device = {};
  EXPECT_EQ(made->run(mixed).message(), "out: device is cpu:0, q has cuda:1");
  const auto here = plan(problem_of(call.args()), {.threads = 1});
  ASSERT_TRUE(here);
  EXPECT_EQ(here->run(on_gpu(call.args())).message(), "q: device is cuda:0, the plan has cpu:0");
  EXPECT_TRUE(gpus.launches.empty());
}

TEST_F(gpu_plans, HoldRunsToTheAlignmentTheyWereMadeFor) {
  std::vector<float> more(call.q.size() + 4);
  const auto past = reinterpret_cast<std::uintptr_t>(more.data()) % 16 / sizeof(float);
  float* const odd = more.data() + (5 - past) % 4;  // 4 bytes past a multiple of 16
  std::copy(call.q.begin(), call.q.end(), odd);
  auto args = on_gpu(call.args());
  args.q.data = odd;
  EXPECT_TRUE(problem_of(args).unaligned);
  const auto aligned = make();
  ASSERT_TRUE(aligned) << aligned.message();
  EXPECT_EQ(aligned->run(args).message(),
            "q, k, v: not every row starts at a multiple of 16 bytes, the plan was made for rows "
            "that do");
  const auto any = make(0, "attention.pretended", true);
  ASSERT_TRUE(any) << any.message();
  EXPECT_TRUE(any->run(args));
  EXPECT_TRUE(any->run(on_gpu(call.args())));
  EXPECT_LT(call.error(), close);
}

TEST_F(gpu_plans, AskNoAlignmentOfRowsThatCannotHaveIt) {
  call = small_call(5, 9, 2, 15);  // rows of 60 bytes
  EXPECT_TRUE(problem_of(on_gpu(call.args())).unaligned);
  const auto made = make();  // from shapes alone
  ASSERT_TRUE(made) << made.message();
  const status done = made->run(on_gpu(call.args()));
  EXPECT_TRUE(done) << done.message();
  EXPECT_LT(call.error(), close);
}

TEST_F(gpu_plans, TakeDropoutMasksOnlyFromRowsThatWriteThem) {
  const flash_attention_options options{.dropout_probability = 0.5};
  context where;
  where.row = "attention.pretended";
  where.rows = &own;
  where.device = {device_kind::cuda, 0};
  const auto made = plan(problem_of(on_gpu(call.args()), options), where);
  ASSERT_TRUE(made) << made.message();
  std::vector<std::uint8_t> kept(2 * 5 * 9, 7);
  auto args = call.args();
  args.dropout_mask = view(kept.data(), {1, 2, 5, 9});
  EXPECT_EQ(made->run(on_gpu(args)).message(),
            "attention.pretended: has no code that writes dropout_mask");
  static std::uint8_t* written = nullptr;
  static void* in = nullptr;
  rows[1].finish = [](const void* tensors, const void* lowered,
                      const launch_context& launch) -> status {
    const auto& mask = static_cast<const flash_attention_args*>(tensors)->dropout_mask;
    written = static_cast<std::uint8_t*>(mask.data);
    in = launch.stream;
    EXPECT_TRUE(static_cast<const attention_kernel_args*>(lowered)->dropout);
    return {};
  };
  EXPECT_TRUE(made->run(on_gpu(args), other));
  EXPECT_EQ(written, kept.data());
  EXPECT_EQ(in, other);
}

/// Lengths in the memory of a GPU, of which nobody has looked at the values.
class checked_gpu_plans : public gpu_plans {
 protected:
  flash_attention_args args() {
    flash_attention_args used = call.args();
    used.seqlens_k = view(&length, {1});
    return on_gpu(used);
  }
  result<flash_plan> make_checked(bool checked = true) {
    context where = with_rows({.row = "attention.pretended"}, own);
    where.stream = stream;
    where.device = {device_kind::cuda, 0};
    where.checked = checked;
    return plan(problem_of(args()), where);
  }

  std::int32_t length = 7;
};

TEST_F(checked_gpu_plans, CountFaultsBeforeEachRunInItsStream) {
  const auto made = make_checked();
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(gpus.live.size(), 2u) << "scratch, counters";
  ASSERT_TRUE(made->run(args()));
  ASSERT_TRUE(made->faults());
  EXPECT_TRUE(made->faults()->empty());
  for (const std::int32_t wrong : {-1, 10}) {
    length = wrong;
    ASSERT_TRUE(made->run(args(), other));
  }
  length = 9;
  ASSERT_TRUE(made->run(args()));
  EXPECT_EQ(gpus.counted_in, (std::vector<void*>{stream, other, other, stream}));
  const auto faults = made->faults(other);
  ASSERT_TRUE(faults) << faults.message();
  ASSERT_EQ(faults->size(), 1u);
  EXPECT_EQ(faults->front().tensor, "seqlens_k");
  EXPECT_EQ(tensors_of(args())[faults->front().place].data, &length);
  EXPECT_EQ(faults->front().entries, 2u);
}

TEST_F(checked_gpu_plans, TellNothingInACapturedStream) {
  const auto made = make_checked();
  ASSERT_TRUE(made) << made.message();
  gpus.captured.insert(stream);
  const auto faults = made->faults();
  ASSERT_FALSE(faults);
  EXPECT_EQ(faults.code(), status_code::device);
  EXPECT_NE(faults.message().find("the stream is captured"), std::string::npos);
  EXPECT_TRUE(made->faults(other));
}

TEST_F(checked_gpu_plans, AreAskedFor) {
  const auto made = make_checked(false);
  ASSERT_TRUE(made) << made.message();
  length = -1;
  ASSERT_TRUE(made->run(args()));
  EXPECT_TRUE(gpus.counted_in.empty());
  EXPECT_EQ(made->faults().message(),
            "plan: counts no faults on cuda:0, it was made with context.checked false");
  context where = with_rows({.row = "attention.pretended"}, own);
  where.checked = true;
  EXPECT_EQ(flash_attention(args(), {}, where).message(),
            "context.checked: is true, and a call on cuda:0 has nobody to ask for faults; run a "
            "plan");
}

TEST_F(checked_gpu_plans, RefuseFaultsOnTheCpu) {
  flash_attention_args here = call.args();
  here.seqlens_k = view(&length, {1});
  const auto made = plan(problem_of(here), {.threads = 1, .checked = true});
  ASSERT_TRUE(made) << made.message();
  length = 10;
  EXPECT_EQ(made->run(here).message(), "seqlens_k: entry 0 is 10, must be 0 to the 9 rows of k");
  const auto faults = made->faults();
  ASSERT_TRUE(faults) << faults.message();
  EXPECT_TRUE(faults->empty());
}

}  // namespace
}  // namespace tessera::testing
