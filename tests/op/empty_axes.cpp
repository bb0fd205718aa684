// Nothing on an axis, on several, and on none: every row is called, planned and explained, with
// fewer and with more threads than there is work.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/op/operation_test.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

/// Dims of an operation that may be 0.
std::vector<std::size_t> dims_that_may_be_empty(const operation& op) {
  const signature& form = *op.form;
  std::vector<std::size_t> dims;
  for (std::size_t i = 0; i < form.dims.size(); ++i) {
    bool is_free = form.dims[i].source == dim_source::tensor && form.dims[i].least == 0;
    for (const multiple_rule& rule : form.multiples) {
      is_free = is_free && rule.by != static_cast<int>(i);
    }
    bool is_used = false;
    for (std::size_t tensor = 0; tensor < form.tensors.size(); ++tensor) {
      if ((op.taken >> tensor & 1u) == 0) continue;
      for (std::size_t layout = 0; layout < form.layouts.size(); ++layout) {
        for (const axis_form& axis : form.shape(tensor, static_cast<int>(layout)).axes) {
          is_used |= axis.dim == static_cast<int>(i);
        }
      }
    }
    if (is_free && is_used) dims.push_back(i);
  }
  return dims;
}

class empty_axes : public operation_test<tested_operation> {
 protected:
  /// The row, or the one the library chooses, with any number of threads.
  static void expect_served(call_data& data, const call_expectation& expectation,
                            std::string_view row) {
    SCOPED_TRACE(row);
    const family& kind = *GetParam().kind;
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 64}) {
      if (threads == 2 && !row.empty()) continue;
      if (row.empty()) first.clear();  // what the library chooses may depend on them
      const context where{.row = row, .threads = threads};
      EXPECT_EQ(complaints_of_call(kind, data, expectation, where, first), "") << threads;
      EXPECT_EQ(complaints_of_plan(kind, data, expectation, where), "") << threads;
    }
  }
};

/// Calls visit(data, expectation) for `calls` calls of each set of axes that may be empty; their
/// number.
template <class Visitor>
std::uint64_t for_each_call(const tested_operation& tested, std::uint64_t calls,
                            const Visitor& visit) {
  const std::vector<std::size_t> dims = dims_that_may_be_empty(*tested.op);
  std::uint64_t count = 0;
  for (std::uint64_t axes = 0; axes < std::uint64_t{1} << dims.size(); ++axes) {
    for (std::uint64_t index = 0; index < calls && !testing::Test::HasFailure(); ++index) {
      call_wishes wishes;
      for (std::size_t i = 0; i < dims.size(); ++i) {
        if ((axes >> i & 1u) != 0) wishes.extents[dims[i]] = 0;
      }
      wishes.density = index % 2 == 0 ? 0.0 : 0.4;
      wishes.type = std::array{dtype::f32, dtype::f16, dtype::bf16}[index % 3];
      wishes.attempts = 200;
      wishes.work = 2e4;
      random_source random = stream(21 + axes, index);
      const std::unique_ptr<call_data> data = call_here_for(tested, random, wishes);
      if (data == nullptr) continue;
      SCOPED_TRACE(data->text());
      EXPECT_TRUE(data->refusal()) << data->refusal().message();
      if (!data->refusal()) return count;
      visit(*data, call_expectation(data->call()));
      ++count;
    }
  }
  return count;
}

TEST_P(empty_axes, are_served) {
  const std::uint64_t served =
      for_each_call(GetParam(), 6, [](call_data& data, const call_expectation& expectation) {
        expect_served(data, expectation, "");
      });
  EXPECT_GE(served, std::uint64_t{3} << dims_that_may_be_empty(*GetParam().op).size());
}

TEST_P(empty_axes, are_served_by_every_row) {  // each operand type once
  for_each_call(GetParam(), 3, [](call_data& data, const call_expectation& expectation) {
    for (const tested_row& tested : tested_rows()) {
      const bool fits = tested.kind == GetParam().kind && runs_here(tested.row->target) &&
                        runs(*tested.kind, *tested.row, problem_here(data.problem()));
      if (fits) expect_served(data, expectation, tested.row->name);
      if (HasFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(operations, empty_axes, testing::ValuesIn(tested_operations()),
                         [](const auto& tested) { return std::string(tested.param.op->name); });

}  // namespace
}  // namespace tessera::support
