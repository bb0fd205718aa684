// Plans: chosen once, run often, safe whatever is brought to a run.
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

namespace tessera::testing {
namespace {

constexpr double tolerance = 1e-5;

TEST(Plan, RunsLikeTheCall) {
  small_call call(17, 33, 3, 64);
  auto made = plan(problem_of(call.args()), {.threads = 2});
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(made->choice().tier, selection_tier::heuristic);
  EXPECT_EQ(made->threads(), 2);
  EXPECT_EQ(text_of(made->problem()), to_text(problem_of(call.args())));
  for (int i = 0; i < 3; ++i) {
    call.out.assign(call.out.size(), 0.0f);
    const status done = made->run(call.args());
    ASSERT_TRUE(done) << done.message();
    EXPECT_LT(call.error(), tolerance);
  }
}

TEST(Plan, TakesOutputsItWasNotToldOf) {
  small_call call(4, 5, 2, 64);
  std::vector<float> lse(8, 99.0f);
  const auto made = plan(problem_of(call.args()));
  ASSERT_TRUE(made) << made.message();
  flash_attention_args args = call.args();
  args.lse = view(lse.data(), {1, 2, 4});
  ASSERT_TRUE(made->run(args));
  for (const float value : lse) EXPECT_LT(value, 50.0f);
}

TEST(Plan, RefusesOtherProblems) {
  small_call call(6, 6, 2, 64);
  std::vector<float> sinks(2, 0.0f);
  const auto made = plan(problem_of(call.args()));
  ASSERT_TRUE(made) << made.message();
  const auto refusal = [&](const std::function<void(flash_attention_args&)>& bend) {
    flash_attention_args args = call.args();
    bend(args);
    return made->run(args).message();
  };
  EXPECT_EQ(refusal([](auto& a) { a.q.extent[1] = a.out.extent[1] = 5; }),
            "q: length is 5, the plan has 6");
  EXPECT_EQ(refusal([](auto& a) { a.k.extent[1] = a.v.extent[1] = 4; }),
            "k: length is 4, the plan has 6");
  EXPECT_EQ(refusal([](auto& a) { a.v.extent[3] = a.out.extent[3] = 32; }),
            "v: head_dim is 32, the plan has 64");
  EXPECT_EQ(refusal([&](auto& a) {
              a.sinks = view(sinks.data(), {2, 1});
            }),
            "sinks: is given, the plan has none");
  EXPECT_EQ(refusal([](auto& a) { a.k.extent[1] = 4; }), "v: length is 6, k has 4");
  EXPECT_EQ(refusal([](auto& a) { a.out.data = a.q.data; }),
            "out: shares memory with q, 3072 of its 3072 bytes lie between the first and last of "
            "it");
  EXPECT_EQ(refusal([](auto& a) { a.q.data = nullptr; }),
            "q: data is null, the shape has 768 elements");
  EXPECT_EQ(refusal([](auto& a) { a.q.rank = 3; }),
            "q: rank is 3, dense tensors have 4 [B,Sq,Hq,D]");
}

// Rows keep states for the gradients of decays, so that a plan knows of them.
TEST(Plan, RefusesGradientsOfDecaysItWasNotToldOf) {
  constexpr std::int64_t tokens = 3, heads = 2, channels = 4;
  std::vector<float> inputs(tokens * heads * channels, 0.5f), decays(tokens * heads, -0.1f),
      d_q(inputs.size()), d_k(inputs.size()), d_v(inputs.size()), d_g(decays.size(), 99.0f);
  const auto rows = [](std::vector<float>& numbers) {
    return view(numbers.data(), {1, tokens, heads, channels});
  };
  recurrent_args args{.q = rows(inputs),
                      .k = rows(inputs),
                      .v = rows(inputs),
                      .g = view(decays.data(), {1, tokens, heads}),
                      .d_out = rows(inputs),
                      .d_q = rows(d_q),
                      .d_k = rows(d_k),
                      .d_v = rows(d_v)};
  const auto without = plan(problem_of(args, {}, recurrent_op::recurrent_backward));
  ASSERT_TRUE(without) << without.message();
  recurrent_args more = args;
  more.d_g = view(d_g.data(), {1, tokens, heads});
  EXPECT_EQ(without->run(more).message(), "d_g: is given, the plan has none");
  EXPECT_EQ(d_g, std::vector<float>(d_g.size(), 99.0f));
  const auto with = plan(problem_of(more, {}, recurrent_op::recurrent_backward));
  ASSERT_TRUE(with) << with.message();
  EXPECT_EQ(with->run(args).message(), "d_g: is absent, the plan has one");
  const status done = with->run(more);
  ASSERT_TRUE(done) << done.message();
  for (const float gradient : d_g) EXPECT_LT(gradient, 50.0f);
}

// The quick check of a planned run must never take what the full one refuses, nor refuse what it
// takes: layouts other than the row-major one go the long way, with the same answers.
TEST(Plan, TakesExactlyTheMemoryThatTheCallTakes) {
  small_call call(6, 9, 2, 64);
  const auto made = plan(problem_of(call.args()));
  ASSERT_TRUE(made) << made.message();
  std::vector<float> wide(6 * 2 * 80, 0.5f);
  std::vector<float> lse(12);
  alignas(64) static char bytes[6 * 2 * 64 * 4 + 64];
  const std::vector<std::function<void(flash_attention_args&)>> bends{
      [](auto&) {},
      [&](auto& a) {
        a.q = view(wide.data(), {1, 6, 2, 64}, {960, 160, 80, 1});
      },
      [&](auto& a) {
        a.out = view(wide.data(), {1, 6, 2, 64}, {960, 160, 80, 1});
      },
      [](auto& a) { a.k.stride[0] = 12345; },
      [](auto& a) {
        a.k.stride[1] = -a.k.stride[1];
        a.k.data = static_cast<float*>(a.k.data) + 8 * 128;
      },
      [](auto& a) { a.v.data = a.k.data; },
      [](auto& a) { a.out.read_only = true; },
      [](auto& a) { a.out.data = a.k.data; },
      [](auto& a) { a.out.data = static_cast<float*>(a.q.data) + 6 * 2 * 64 - 1; },
      [](auto& a) { a.q.data = bytes + 1; },
      [](auto& a) { a.v.data = nullptr; },
      [](auto& a) { a.out.stride[2] = 0; },
      [](auto& a) { a.q.device.kind = device_kind::cuda; },
      [](auto& a) { a.q.data = reinterpret_cast<void*>(UINTPTR_MAX - 63); },
      [&](auto& a) {
        a.lse = view(lse.data(), {1, 2, 6});
      },
      [&](auto& a) {
        a.lse = view(lse.data(), {1, 6, 2});
      },
      [&](auto& a) {
        a.lse = view(static_cast<float*>(a.out.data), {1, 2, 6});
      },
      [&](auto& a) {
        a.row_max = view(lse.data(), {1, 2, 6});
      },
  };
  int taken = 0;
  for (std::size_t i = 0; i < bends.size(); ++i) {
    flash_attention_args args = call.args();
    bends[i](args);
    const status planned = made->run(args);
    const status called = flash_attention(args);
    EXPECT_EQ(planned.message(), called.message()) << "bend " << i;
    taken += planned ? 1 : 0;
  }
  EXPECT_EQ(taken, 7);
}

TEST(Plan, ChecksTheLengthsOfEachRun) {
  small_call call(6, 6, 2, 64);
  std::vector<std::int32_t> lengths{6};
  flash_attention_args args = call.args();
  args.seqlens_k = view(lengths.data(), {1});
  const auto made = plan(problem_of(args));
  ASSERT_TRUE(made) << made.message();
  EXPECT_TRUE(made->run(args));
  lengths[0] = 7;
  EXPECT_EQ(made->run(args).message(), "seqlens_k: entry 0 is 7, must be 0 to the 6 rows of k");
}

TEST(Plan, RefusesWhatTheOperationRefuses) {
  small_call call(6, 6, 2, 64);
  flash_problem problem = problem_of(call.args());
  problem.tensors.k.extent[3] = 32;
  EXPECT_EQ(plan(problem).message(), "k: head_dim is 32, q has 64");
  EXPECT_EQ(plan(flash_problem{}).code(), status_code::invalid_argument);
  EXPECT_EQ(plan(problem_of(call.args()), {.row = "no.such.row"}).code(), status_code::unknown_row);
  EXPECT_EQ(plan(problem_of(call.args()), {.threads = 5000}).message(),
            "context.threads: is 5000, must be 0 to 4096");
}

// A problem is shapes: plan and explain say the same of it, whatever strides lie in its views.
TEST(Plan, AndExplainLookAtNoStrides) {
  constexpr std::int64_t pages = 7, slots = 3, groups = 2, lanes = 4, columns = 128;
  ragged_page_args args{.q = shaped(dtype::f32, {9, 4, 28}),
                        .kv_pages = shaped(dtype::i8, {pages, slots, groups, lanes, columns}),
                        .block_table = shaped(dtype::i32, {3, 4}),
                        .seqlens_k = shaped(dtype::i32, {3}),
                        .cu_seqlens_q = shaped(dtype::i32, {4}),
                        .k_new = shaped(dtype::f32, {9, 4, 28}),
                        .v_new = shaped(dtype::f32, {9, 4, 28}),
                        .out = shaped(dtype::f32, {9, 4, 28})};
  const auto asked = [&] {
    return problem_of(args, {.pool_layout = page_layout::PTCLD},
                      ragged_page_op::ragged_page_attention_v3);
  };
  const auto planned = plan(asked());
  EXPECT_TRUE(planned) << planned.message();
  args.kv_pages.stride = {3072, 1024, -(std::int64_t{1} << 60), 128, 1};
  const auto again = plan(asked());
  EXPECT_TRUE(again) << again.message();
  const auto explained = explain(asked());
  EXPECT_TRUE(explained) << explained.message();
}

TEST(Plan, SharesItsMemoryWithOneRunAtATime) {
  small_call call(16, 256, 2, 64);
  const auto made = plan(problem_of(call.args()), {.threads = 1});
  ASSERT_TRUE(made) << made.message();
  std::atomic<int> succeeded{0};
  std::atomic<int> refused{0};
  const auto work = [&] {
    small_call own(16, 256, 2, 64);
    for (int i = 0; i < 50; ++i) {
      const status done = made->run(own.args());
      ++(done ? succeeded : refused);
      EXPECT_EQ(done.code(), done ? status_code::ok : status_code::workspace) << done.message();
      EXPECT_LT(done ? own.error() : 0.0, tolerance);
    }
  };
  std::thread first(work);
  std::thread two(work);
  first.join();
  two.join();
  EXPECT_EQ(succeeded + refused, 100);
  EXPECT_GE(succeeded, 50);
}

TEST(Plan, RunsConcurrentlyWithSeparateMemory) {
  small_call call(16, 64, 2, 64);
  const auto made = plan(problem_of(call.args()), {.threads = 1});
  ASSERT_TRUE(made) << made.message();
  const auto work = [&] {
    small_call own(16, 64, 2, 64);
    std::vector<std::byte> memory(made->workspace_bytes() + 64);
    const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    const std::span<std::byte> aligned{memory.data() + (64 - past) % 64, made->workspace_bytes()};
    for (int i = 0; i < 50; ++i) {
      const status done = made->run(own.args(), aligned);
      EXPECT_TRUE(done) << done.message();
    }
    EXPECT_LT(own.error(), tolerance);
  };
  std::thread first(work);
  std::thread two(work);
  first.join();
  two.join();
}

TEST(Plan, CallsFromManyThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        small_call own(5 + t, 9 + i, 2, 64);
        const status done = flash_attention(own.args(), {}, {.threads = 1});
        EXPECT_TRUE(done) << done.message();
        EXPECT_LT(own.error(), tolerance);
      }
    });
  }
  for (std::thread& first : threads) first.join();
}

TEST(Plan, MovesWithItsMemory) {
  small_call call(6, 6, 2, 64);
  auto made = plan(problem_of(call.args()));
  ASSERT_TRUE(made) << made.message();
  const flash_plan moved = std::move(*made);
  ASSERT_TRUE(moved.run(call.args()));
  EXPECT_LT(call.error(), tolerance);
}

}  // namespace
}  // namespace tessera::testing
