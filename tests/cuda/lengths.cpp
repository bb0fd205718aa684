// Lengths, offsets and page numbers in device memory are not looked at by the host, so they may
// hold anything when a kernel reads them: it stays inside the tensors, ends, and leaves the device
// in order.
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/operations.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::device_test {
namespace {

using support::call_data;
using support::call_here;

class wrong_lengths : public testing::TestWithParam<support::tested_operation> {
 protected:
  static const operation& op() { return *GetParam().op; }

  /// `wrong` at each of the first and last places of a tensor, on a row, behind margins.
  static void expect_contained(call_data& data, const instance& row, std::size_t tensor) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    constexpr std::int64_t least = std::numeric_limits<std::int32_t>::min();
    const tensor_view& numbers = data.tensors()[tensor];
    for (const std::int64_t wrong :
         {std::int64_t{-1}, least, most, most - 63, std::int64_t{301}, std::int64_t{1} << 30,
          -(std::int64_t{1} << 30), std::int64_t{0}}) {
      reference::for_each_element(numbers, [&](std::int64_t flat, std::int64_t offset) {
        if (testing::Test::HasFailure() || (flat > 3 && flat + 1 < numbers.elements())) return;
        SCOPED_TRACE(std::string(row.name) + " " + std::string(op().form->tensors[tensor].name) +
                     " entry " + std::to_string(flat) + " is " + std::to_string(wrong));
        data.reset();
        const double right = reference::read(numbers, offset);
        support::store(numbers, offset, static_cast<double>(wrong));
        SCOPED_TRACE(data.text());
        try {
          const status done = call_here(*GetParam().kind, data.problem(), {.row = row.name});
          EXPECT_TRUE(done) << done.message();
        } catch (const std::exception& failed) {
          FAIL() << failed.what();
        }
        support::store(numbers, offset, right);
        EXPECT_TRUE(data.intact()) << "memory outside the outputs was written";
      });
    }
  }
};

TEST_P(wrong_lengths, stay_inside_the_tensors) {
  for (const support::tested_row& tested : support::tested_rows()) {
    if (tested.kind != GetParam().kind || !support::runs_here(tested.row->target)) continue;
    for (std::uint64_t index = 0; index < 12; ++index) {
      support::random_source random = support::stream(8, index);
      support::call_wishes wishes;
      wishes.attempts = 300;
      wishes.work = 1e6;
      const auto data = support::call_for(tested, op(), random, wishes);
      if (data == nullptr) continue;
      for (std::size_t i = 0; i < op().form->tensors.size(); ++i) {
        const bool decides = reference::decides_what_is_read(*op().form, i);
        if (data->call().has(i) && decides) expect_contained(*data, *tested.row, i);
        if (HasFailure()) return;
      }
      data->reset();
      const support::call_expectation expectation(data->call());
      std::vector<std::vector<std::byte>> first;
      ASSERT_EQ(support::complaints_of_call(*tested.kind, *data, expectation,
                                            {.row = tested.row->name}, first),
                "")
          << "with the right numbers";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(operations, wrong_lengths, testing::ValuesIn(support::tested_operations()),
                         [](const auto& tested) { return std::string(tested.param.op->name); });

}  // namespace
}  // namespace tessera::device_test
