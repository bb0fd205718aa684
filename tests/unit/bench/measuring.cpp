// What the benches say of their rounds, and what their shape files may hold.
#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/ceilings.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/roofline.hpp"
#include "bench/support/workload.hpp"

namespace {

using namespace tessera::bench;

TEST(case_line, notes_are_read) {
  const bench_case timing = parse_case(
      "flash_attention q=[1,8,4,64]f32 k=[1,8,4,64]  # goal=rate:0.80 beside=plain lengths=zipf",
      "s");
  EXPECT_EQ(timing.problem, "flash_attention q=[1,8,4,64]f32 k=[1,8,4,64]");
  EXPECT_EQ(timing.goal.quantity, "rate");
  EXPECT_EQ(timing.goal.value, 0.8);
  EXPECT_EQ(timing.beside, "plain");
  EXPECT_EQ(name_of(timing), "s/flash_attention q=[1,8,4,64]f32 k=[1,8,4,64] lengths=zipf");
  EXPECT_EQ(name_of(parse_case("x # isa=cpu_avx2 threads=1", "s")), "s/x isa=cpu_avx2 threads=1");
}

TEST(case_line, a_wrong_note_is_named) {
  for (const auto& [line, word] : {std::pair{"x # gaol=peak:0.9", "gaol"},
                                   {"x # goal=peak:high", "high"},
                                   {"x # goal=0.9", "goal"},
                                   {"x # goal=speed:0.9", "speed"},
                                   {"x # beside=him", "him"},
                                   {"x # plain", "plain"},
                                   {"x # isa=cpu_avx9", "cpu_avx9"}}) {
    try {
      static_cast<void>(parse_case(line, "s"));
      FAIL() << line << " was taken";
    } catch (const std::runtime_error& refused) {
      EXPECT_NE(std::string(refused.what()).find(word), std::string::npos) << refused.what();
    }
  }
}

TEST(case_line, every_shape_file_is_sound) {
  constexpr std::array<std::string_view, 1> ops{"flash_attention"};
  const auto cases = read_cases(TESSERA_SHAPES_DIR, ops);
  EXPECT_GT(cases.size(), 50u);
  for (const bench_case& timing : cases) {
    const auto problem = tessera::parse_problem<tessera::flash_problem>(timing.problem);
    EXPECT_TRUE(problem) << timing.problem << ": " << problem.message();
  }
}

alternation rounds_with_losses(const std::vector<double>& losses) {
  alternation all;
  for (const double lost : losses) {
    alternated_round round;
    round.seconds = lost > 0.01 ? 5.0 : 1.0;
    round.limit = 2e-9;
    round.lost_share = lost;
    all.rounds.push_back(round);
  }
  return all;
}

TEST(alternation, disturbed_rounds_do_not_count) {
  alternation all = rounds_with_losses({0, 0.5, 0, 0.02, 0.001});
  detail::leave_out_disturbed(all, 3);
  EXPECT_EQ(all.dropped, 2u);
  EXPECT_FALSE(all.disturbed);
  EXPECT_EQ(all.of([](const alternated_round& r) { return r.seconds; }).max, 1.0);
}

TEST(alternation, too_few_clean_rounds_are_said_and_the_best_count) {
  alternation all = rounds_with_losses({0, 0.5, 0.3, 0.02, 0});
  detail::leave_out_disturbed(all, 3);
  EXPECT_TRUE(all.disturbed);
  EXPECT_EQ(all.dropped, 2u);
  ASSERT_EQ(all.rounds.size(), 3u);
  EXPECT_EQ(all.of([](const alternated_round& r) { return r.lost_share; }).max, 0.02);
}

TEST(alternation, calls_probe_and_beside_take_turns) {
  std::string order;
  const alternation all = alternate(
      {.warm_ups = 1, .min_rounds = 3, .max_rounds = 3, .seconds = 0, .group_seconds = 0}, 1,
      [&](std::size_t) { order += 'w'; }, true, [&](std::size_t) { order += 'b'; },
      [&] {
        order += 'p';
        return 1.0;
      });
  EXPECT_EQ(all.rounds.size() + all.dropped, 3u);
  EXPECT_EQ(order, "wbpwbpbwpwbp") << "warm-ups, then the second round the other way round";
}

TEST(roofline, the_lower_roof_binds) {
  const roofs above{100, 10};
  const placement computing = place(50e9, 1e9, 1.0, above);
  EXPECT_DOUBLE_EQ(computing.intensity, 50);
  EXPECT_DOUBLE_EQ(computing.attainable, 100);
  EXPECT_DOUBLE_EQ(computing.of_ceiling, 0.5);
  EXPECT_FALSE(bound_by_reading(50e9, 1e9, above));
  const placement reading = place(5e9, 8e9, 1.0, above);
  EXPECT_DOUBLE_EQ(reading.attainable, 6.25);
  EXPECT_DOUBLE_EQ(reading.of_ceiling, 0.8);
  EXPECT_TRUE(bound_by_reading(5e9, 8e9, above));
}

TEST(measured_case, goals_of_time_are_upper_bounds) {
  measured_case timing;
  timing.time_to_beside = 1.5;
  timing.goal = {"time", 1.25};
  EXPECT_LT(share_of_goal(timing), 1.0);
  timing.time_to_beside = 1.1;
  EXPECT_GT(share_of_goal(timing), 1.0);
  timing.rate_to_beside = 0.75;
  timing.goal = {"rate", 0.75};
  EXPECT_DOUBLE_EQ(share_of_goal(timing), 1.0);
}

TEST(measured_case, ratios_are_taken_within_a_round) {
  alternation taken;
  for (const double slow : {1.0, 4.0, 2.0}) {
    taken.rounds.push_back({.seconds = slow, .beside_seconds = 2 * slow, .limit = 10 / slow});
  }
  measured_case timing;
  timing.flops = 5e9;
  timing.bytes = 1;
  summarise(timing, taken, false, {100.0, 1.0}, 1e9);
  EXPECT_DOUBLE_EQ(timing.place.of_peak, 0.5) << "each round reached half of its own limit";
  EXPECT_DOUBLE_EQ(timing.time_to_beside, 0.5);
  EXPECT_DOUBLE_EQ(timing.rate_to_beside, 10.0);
  EXPECT_DOUBLE_EQ(timing.time.median, 2.0);
}

TEST(measured_case, rounds_without_a_probe_are_held_to_the_ceilings_of_the_run) {
  alternation taken;
  taken.rounds = {{.seconds = 1.0, .limit = 0}};
  measured_case timing;
  timing.flops = 5e9;
  timing.bytes = 1;
  summarise(timing, taken, false, {20.0, 1.0}, 0);
  EXPECT_DOUBLE_EQ(timing.place.of_peak, 0.25);
  EXPECT_DOUBLE_EQ(timing.above.peak_gflops, 20.0);
}

TEST(alternation, rounds_whose_probes_were_disturbed_do_not_count) {
  std::size_t probes = 0;
  const alternation all = alternate(
      {.warm_ups = 1, .min_rounds = 6, .max_rounds = 6, .seconds = 0, .group_seconds = 0}, 1,
      [](std::size_t) {}, false, [](std::size_t) {}, [&] { return ++probes < 6 ? 1.0 : 0.0; });
  EXPECT_TRUE(all.dropped >= 1 || all.disturbed);
}

TEST(workload, zipf_lengths_fill_the_tokens) {
  const auto problem = tessera::parse_problem<tessera::flash_problem>(
      "flash_attention q=[1000,2,32]f32 k=[1000,2,32] cu_seqlens_q=[17]i32 cu_seqlens_k=[17]i32");
  ASSERT_TRUE(problem) << problem.message();
  const workload_of tensors(*problem, {.lengths = length_profile::zipf});
  const auto* offset = static_cast<const std::int32_t*>(tensors.args().cu_seqlens_q.data);
  EXPECT_EQ(offset[0], 0);
  EXPECT_EQ(offset[16], 1000);
  std::int32_t longest = 0;
  for (int n = 0; n < 16; ++n) {
    EXPECT_GT(offset[n + 1], offset[n]);
    longest = std::max(longest, offset[n + 1] - offset[n]);
  }
  EXPECT_GT(longest, 4 * 1000 / 16) << "the longest holds far more than its even share";
}

// Orders of magnitude only: what must hold on any machine that is not stopped.
TEST(ceilings, limits_are_ordered) {
  limit_probe probe(1);
  const ceilings limits = measure_ceilings(probe);
  EXPECT_GT(limits.fma_f32_gflops, 0.5);
  EXPECT_GE(limits.fma_f32_gflops, 0.5 * limits.fma_avx2_gflops);
  EXPECT_GT(limits.read_gbytes, 0.1);
  EXPECT_GT(limits.copy_gbytes, 0.1);
  EXPECT_FALSE(limits.read_pattern.empty());
  EXPECT_EQ(limits.round_trip_ns, 0) << "one thread has no other";
}

TEST(ceilings, a_line_takes_some_nanoseconds_to_another_thread_and_back) {
  limit_probe probe(2);
  double best = 0;
  for (int round = 0; round < 5; ++round) best = std::max(best, probe.round_trip());
  EXPECT_GE(best, 0);  // 0 where both threads share a core
  EXPECT_LT(best, 10e3);
}

}  // namespace
