// Gradients of attention whose blocks of keys add to the same sums of d_q, one after the other:
// over many tiles of keys, heads and runs the same bits.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

std::vector<tested_row> rows_in_turns() {
  std::vector<tested_row> rows = tested_rows();
  std::erase_if(rows, [](const tested_row& row) {
    return row.row->name.find("attention_backward") != 0 ||
           row.row->name.find(".turns") == std::string_view::npos;
  });
  return rows;
}

class turns : public testing::TestWithParam<tested_row> {};

TEST_P(turns, have_the_same_bits_a_hundred_times) {
  const tested_row& row = GetParam();
  const operation& op = row.kind->operations[0];
  call_wishes wishes{.density = 0.15, .work = 4e10, .longest = 500};
  for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
    const std::string_view symbol = op.form->dims[dim].symbol;
    if (symbol == "Sq" || symbol == "Sk") wishes.extents[dim] = 500;
    if (symbol == "B") wishes.extents[dim] = 1;
    if (symbol == "Hq" || symbol == "Hkv") wishes.extents[dim] = 2;
  }
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    random_source random(seed);
    const auto data = call_for(row, op, random, wishes);
    if (data == nullptr) continue;
    ++ran;
    const call_expectation expectation(data->call());
    std::vector<std::vector<std::byte>> first;
    const context where{.row = row.row->name};
    ASSERT_EQ(complaints_of_call(*row.kind, *data, expectation, where, first), "") << data->text();
    for (int run = 1; run < 100; ++run) {
      data->reset();
      const status done = call_here(*row.kind, data->problem(), where);
      ASSERT_TRUE(done) << done.message();
      ASSERT_EQ(data->output_bytes(), first) << "run " << run << " of " << data->text();
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(rows, turns, testing::ValuesIn(rows_in_turns()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

}  // namespace
}  // namespace tessera::support
