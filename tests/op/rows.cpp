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

/// A dim of an operation's signature.
struct dim_of_operation {
  const operation* op = nullptr;
  std::size_t dim = 0;
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
  std::uint64_t most = 0;  // of one operation
  for (const operation& op : operations()) {
    std::uint64_t ran = 0;
    for (std::uint64_t index = 0; index < calls; ++index) {
      SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
      call_wishes wishes;
      if (ran == 0) wishes.attempts = 500;  // most rows run few of the operations
      if (expect_right(op, stream(11, index), wishes, index % 4 == 0)) ++ran;
      if (HasFailure()) return;
      if (ran == 0 && index == 1) break;  // runs no call of this operation
    }
    most = std::max(most, ran);
  }
  EXPECT_GE(most, calls / 2)
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

// Several tiles, several splits, pieces of sums and what merges them. Each length of an axis with
// one of the operations that have it, in turn. Of the two calls of each large length, which take
// almost all of the time, neighbours in the table run one each.
TEST_P(rows, are_right_with_a_long_axis) {
  std::map<std::string_view, std::vector<dim_of_operation>> axes;
  for (const operation& op : operations()) {
    for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
      if (op.form->dims[dim].source != dim_source::tensor) continue;
      axes[op.form->dims[dim].symbol].push_back({&op, dim});
    }
  }
  constexpr std::array<std::int64_t, 7> extents{511, 1025, 2300, 9001, 9001, 40000, 40000};
  const auto place = static_cast<std::size_t>(GetParam().row - GetParam().kind->rows().data());
  for (const auto& [symbol, with] : axes) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      ++number;
      const std::int64_t extent = extents[i];
      if (extent > 9000 && (place + i) % 2 != 0) continue;
      for (std::size_t attempt = 0; attempt < with.size(); ++attempt) {
        const dim_of_operation& axis = with[(number + attempt) % with.size()];
        if (extent > axis.op->form->dims[axis.dim].most) continue;
        SCOPED_TRACE(std::string(axis.op->name) + " " + std::string(symbol) + " " +
                     std::to_string(extent));
        call_wishes wishes;
        wishes.extents[axis.dim] = extent;
        wishes.density = 0.1;
        wishes.work = 4e5;
        wishes.attempts = 150;
        const bool ran = expect_right(*axis.op, stream(13, number), wishes);
        if (HasFailure()) return;
        if (ran) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(table, rows, testing::ValuesIn(tested_rows()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

}  // namespace
}  // namespace tessera::support
