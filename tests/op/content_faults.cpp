// What a checked plan counts on a GPU is what a call on the CPU is refused for: a tensor of a call
// has a fault exactly where the check of host memory refuses the call, for every operation.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/spec/check.hpp>

#include "tests/support/call_faults.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

/// What the check of host memory says of the numbers alone.
std::string refusal_of(const call_data& data) {
  status failure;
  bound_call call = data.call();
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    const tensor_form& form = call.form().tensors[tensor];
    if (!call.has(tensor) || form.holds == tensor_contents::values) continue;
    if (!checks::holds_what_it_says(call, tensor, failure)) return std::string(failure.message());
  }
  return {};
}

TEST(content_faults, are_what_the_host_refuses) {
  int operations = 0;
  std::uint64_t refused = 0, legal = 0;
  for (const tested_operation& tested : tested_operations()) {
    if (!has_content_rules(*tested.op)) continue;
    ++operations;
    for (std::uint64_t index = 0; index < 100; ++index) {
      random_source random = stream(31, index);
      call_wishes wishes;
      wishes.work = 2e4;
      const auto data = drawn_call(*tested.op, random, wishes);
      if (data == nullptr) continue;
      for (int change = 0; change < 8; ++change) {
        data->reset();
        if (change > 0) change_contents(*data, random);
        const std::string refusal = refusal_of(*data);
        refusal.empty() ? ++legal : ++refused;
        const std::vector<std::uint64_t> faults = faults_of(data->call());
        ASSERT_EQ(std::accumulate(faults.begin(), faults.end(), std::uint64_t{0}) > 0,
                  !refusal.empty())
            << data->text() << "\nchange " << change << ", refusal: " << refusal;
      }
    }
  }
  EXPECT_GT(operations, 10);
  EXPECT_GT(legal, 100u * static_cast<unsigned>(operations));
  EXPECT_GT(refused, 100u * static_cast<unsigned>(operations));
}

}  // namespace
}  // namespace tessera::support
