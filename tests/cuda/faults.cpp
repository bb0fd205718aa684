// Checked plans on a device: whatever numbers tensors in device memory hold, runs stay inside them,
// and what is counted is what the CPU refuses calls for.
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/common/content_rules.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>

#include "tests/cuda/device_values.hpp"
#include "tests/support/call_faults.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::device_test {
namespace {

using support::call_data;

class checked_plans : public testing::TestWithParam<support::tested_row> {
 protected:
  /// Runs the call twice, with its numbers and then with the first ones, and compares the counts.
  static void expect_counted(call_data& data, support::random_source& random) {
    support::change_contents(data, random);
    SCOPED_TRACE(data.text());
    const std::vector<std::uint64_t> expected = support::faults_of(data.call());
    context where{.row = GetParam().row->name};
    where.checked = true;
    const problem_view problem = support::problem_here(data.problem());
    const auto plan = plan_operation(*GetParam().kind, problem, support::context_here(where));
    ASSERT_TRUE(plan) << plan.message();
    const auto run = [&](const tensor_view* tensors, const context& there) {
      return plan->run(tensors, there.stream);
    };
    for (int runs = 0; runs < 2; ++runs) {
      const status done = support::run_here(data.problem(), where, run);
      ASSERT_TRUE(done) << done.message();
      data.reset();
    }
    const auto faults = plan->faults();
    ASSERT_TRUE(faults) << faults.message();
    std::vector<std::uint64_t> counted(expected.size());
    for (const tensor_faults& fault : *faults) {
      counted[fault.place] = fault.entries;
      EXPECT_EQ(fault.tensor, data.op().form->tensors[fault.place].name);
    }
    EXPECT_EQ(counted, expected);
  }
};

TEST_P(checked_plans, count_what_the_cpu_refuses) {
  if (!support::runs_here(GetParam().row->target)) return;
  for (const support::tested_operation& tested : support::tested_operations()) {
    if (tested.kind != GetParam().kind || !support::has_content_rules(*tested.op)) continue;
    for (std::uint64_t index = 0; index < 12 && !HasFatalFailure(); ++index) {
      support::random_source random = support::stream(41, index);
      support::call_wishes wishes;
      wishes.attempts = 300;
      wishes.work = 1e6;
      const auto data = support::call_for(GetParam(), *tested.op, random, wishes);
      if (data == nullptr) continue;
      for (int change = 0; change < 4; ++change) expect_counted(*data, random);
    }
  }
}

/// A list of numbers in memory of either side.
prim::number_list list_of(const void* numbers, std::size_t entries) {
  return {
      .data = numbers, .rank = 1, .extent = {static_cast<std::int64_t>(entries)}, .stride = {1}};
}

TEST(count_faults, finds_what_long_lists_hold_twice) {
  if (int devices = 0; cudaGetDeviceCount(&devices) != cudaSuccess) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t limit = 30000;
  support::random_source random(3);
  std::vector<std::int32_t> numbers(7000), apart(500), offsets{0};
  for (std::int32_t& number : numbers) {
    number = static_cast<std::int32_t>(random.between(-1, limit));
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(random.between(0, 2)));
  }
  for (std::int32_t& number : apart) number = static_cast<std::int32_t>(random.between(-1, limit));
  device_values<std::int32_t> there(numbers), apart_there(apart), offsets_there(offsets);
  for (const tensor_contents holds : {tensor_contents::indices, tensor_contents::slots}) {
    const bool slots = holds == tensor_contents::slots;
    prim::content_rule rule{.holds = holds, .limit = limit};
    rule.numbers = list_of(numbers.data(), numbers.size());
    if (slots) rule.used_by = list_of(offsets.data(), offsets.size());
    if (!slots) rule.apart = list_of(apart.data(), apart.size());
    std::uint64_t expected = 0;
    for (std::int64_t n = 0; n < prim::entries_of(rule); ++n) expected += prim::is_fault(rule, n);
    rule.numbers.data = there.data();
    if (slots) rule.used_by.data = offsets_there.data();
    if (!slots) rule.apart.data = apart_there.data();
    device_values<std::uint64_t> counted({0});
    const status done = impl::cuda::count_faults(rule, counted.data(), nullptr);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(counted.fetch()[0], expected);
    EXPECT_GT(expected, 300u);
  }
}

INSTANTIATE_TEST_SUITE_P(rows, checked_plans, testing::ValuesIn(support::tested_rows()),
                         [](const auto& tested) {
                           return support::test_name(tested.param.row->name);
                         });

}  // namespace
}  // namespace tessera::device_test
