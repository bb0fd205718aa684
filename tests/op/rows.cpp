// Every row of the build over generated calls of each operation that it runs: right within its
// tolerance, nothing written outside the outputs, no input changed, the same bits for any number of
// threads; planned and explained.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_run.hpp"
#include "tests/support/fuzz.hpp"

namespace tessera::support {
namespace {

/// Two traits of an operation.
struct trait_pair {
  const operation* op = nullptr;
  std::array<call_trait, 2> traits{};
};

class rows : public testing::TestWithParam<tested_row> {
 protected:
  void SetUp() override {
    const backend target = GetParam().row->target;
    if (!runs_here(target)) GTEST_SKIP() << name_of(target) << " does not run here";
  }

  std::uint64_t number = 0;  ///< of the next call

  static std::span<const operation> operations() { return GetParam().kind->operations; }

  /// Runs the call on the row with 1, 2 and again 1 threads, and planned.
  static void expect_right(call_data& data, bool planned) {
    const family& kind = *GetParam().kind;
    const call_expectation expectation(data.call());
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 1}) {
      const context where{.row = GetParam().row->name, .threads = threads};
      EXPECT_EQ(complaints_of_call(kind, data, expectation, where, first), "")
          << data.text() << " with " << threads << " threads";
    }
    if (!planned) return;
    EXPECT_EQ(complaints_of_plan(kind, data, expectation, {.row = GetParam().row->name}), "")
        << data.text();
  }

  /// The same with a call drawn for the row; false if it runs none like it.
  static bool expect_right(const operation& op, random_source random, const call_wishes& wishes,
                           bool planned = false) {
    const std::unique_ptr<call_data> data = call_for(GetParam(), op, random, wishes);
    if (data != nullptr) expect_right(*data, planned);
    return data != nullptr;
  }
};

TEST_P(rows, are_right_on_random_calls) {
  const std::uint64_t calls = fuzz_setting("TESSERA_CALLS_PER_ROW", 100);
  std::uint64_t ran = 0;
  for (const operation& op : operations()) {
    for (std::uint64_t index = 0; index < calls; ++index) {
      SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
      if (expect_right(op, stream(11, index), {}, index % 4 == 0)) ++ran;
      if (HasFailure()) return;
      if (ran == 0 && index == 1) break;  // runs no call of this operation
    }
  }
  EXPECT_GE(ran, calls / 2)
      << "too few calls are drawn that the row runs: does its family say which "
         "extents it was compiled for (tests/reference)?";
}

// Each pair with one of the operations that have both, in turn.
TEST_P(rows, are_right_with_each_trait_alone_and_in_pairs) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<trait_pair>> pairs;
  for (const operation& op : operations()) {
    const std::vector<call_trait> traits = traits_of(op);
    for (std::size_t a = 0; a < traits.size(); ++a) {
      for (std::size_t b = a; b < traits.size(); ++b) {
        pairs[{name_of(op, traits[a]), name_of(op, traits[b])}].push_back(
            {&op, {traits[a], traits[b]}});
      }
    }
  }
  for (const auto& [names, with] : pairs) {
    const trait_pair& pair = with[number++ % with.size()];
    SCOPED_TRACE(std::string(pair.op->name) + " " + std::string(names.first) + " " +
                 std::string(names.second));
    call_wishes wishes;
    wishes.traits = std::span(pair.traits);
    wishes.density = 0.0;
    wishes.work = 2e4;
    wishes.attempts = 150;
    expect_right(*pair.op, stream(12, number), wishes);
    if (HasFailure()) return;
  }
}

// Several tiles, several splits, pieces of sums and what merges them.
TEST_P(rows, are_right_with_a_long_axis) {
  for (const operation& op : operations()) {
    for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
      for (const std::int64_t extent : {511, 1025, 2300, 9001, 9001, 40000, 40000}) {
        const tessera::dim& of = op.form->dims[dim];
        if (of.source != dim_source::tensor || extent > of.most) continue;
        SCOPED_TRACE(std::string(op.name) + " " + std::string(of.symbol) + " " +
                     std::to_string(extent));
        call_wishes wishes;
        wishes.extents[dim] = extent;
        wishes.density = 0.1;
        wishes.work = 4e5;
        wishes.attempts = 150;
        expect_right(op, stream(13 + dim, number++), wishes);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(table, rows, testing::ValuesIn(tested_rows()),
                         [](const auto& one) { return test_name(one.param.row->name); });

}  // namespace
}  // namespace tessera::support
