// Grouped matrix products where only a device has something to prove: tiles of every row, side by
// side and cut off, that are copied as they are stored or read element by element; groups by
// themselves, bit for bit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/grouped_matmul.hpp>

#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

class matmul_tiles : public testing::TestWithParam<support::tested_row> {
 protected:
  /// What the row's name says: elements of 8 bits, or parts of the summed axis.
  static bool is_named(std::string_view part) {
    return GetParam().row->name.find(part) != std::string_view::npos;
  }
  static bool has_codes() { return is_named(".f8_") || is_named(".i8."); }
  /// Of rows, from multiples of 16 bytes on: the row is refused otherwise.
  static bool asks_for_alignment() { return GetParam().row->target == backend::cuda_sm90; }
  static bool splits() { return is_named("64x64x512"); }
  /// Rows that split sums take products by one matrix, forward.
  static bool takes(const operation& op) {
    return op.name.starts_with("scaled_") == has_codes() && (!splits() || op.name == "matmul");
  }

  /// Calls with several tiles each way, stored row by row and anyhow.
  void expect_right(const operation& op, std::uint64_t seed, std::int64_t k, std::int64_t n) {
    const support::tested_row& row = GetParam();
    support::call_wishes wishes{.density = 0.3, .work = 1e9, .kind = row.kind, .row = row.row};
    for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
      const std::string_view symbol = op.form->dims[dim].symbol;
      if (symbol == "M") wishes.extents[dim] = splits() ? 61 : 197;
      if (symbol == "K") wishes.extents[dim] = k;
      if (symbol == "N") wishes.extents[dim] = n;
      if (symbol == "G" || symbol == "S") wishes.extents[dim] = 3;
      if (symbol == "B") wishes.extents[dim] = splits() ? 1 : 2;
    }
    support::random_source random(seed);
    const auto problem = support::drawn_problem(op, random, wishes);
    ASSERT_TRUE(problem) << op.name;
    for (const bool row_major : {true, false}) {
      support::call_data data(*problem, random,
                              {.row_major = row_major, .aligned = asks_for_alignment()});
      ASSERT_TRUE(data.refusal()) << data.refusal().message();
      const support::call_expectation expectation(data.call());
      std::vector<std::vector<std::byte>> first;
      for (int run = 0; run < 2; ++run) {
        EXPECT_EQ(support::complaints_of_call(*row.kind, data, expectation, {.row = row.row->name},
                                              first),
                  "")
            << data.text() << (row_major ? ", row by row" : "");
      }
    }
  }
};

TEST_P(matmul_tiles, are_right_however_they_are_stored) {
  std::uint64_t seed = 0;
  for (const operation& op : GetParam().kind->operations) {
    if (!takes(op)) continue;
    const std::int64_t k = splits() ? 1088 : has_codes() ? 336 : 72;
    for (int call = 0; call < 2; ++call) expect_right(op, ++seed, k, 264);
    if (splits()) expect_right(op, ++seed, 1024, 72);
    if (!asks_for_alignment()) expect_right(op, ++seed, 77, 259);
  }
}

std::vector<support::tested_row> matmul_rows() {
  std::vector<support::tested_row> all = support::tested_rows();
  std::erase_if(all, [](const auto& entry) { return entry.kind->name != "grouped_matmul"; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(rows, matmul_tiles, testing::ValuesIn(matmul_rows()),
                         [](const auto& tested) {
                           return support::test_name(tested.param.row->name);
                         });

/// Rows of groups that begin anywhere, and out of a row.
struct grouped_rows_call {
  static constexpr std::int64_t k = 200, n = 264;
  std::vector<bf16> lhs, rhs, out;
  std::vector<std::int32_t> sizes;

  grouped_rows_call(std::vector<std::int32_t> of_groups, std::int64_t rows)
      : sizes(std::move(of_groups)) {
    support::random_source random(9);
    const auto fill = [&](std::vector<bf16>& to, std::int64_t count) {
      for (std::int64_t at = 0; at < count; ++at) to.emplace_back(random.bell());
    };
    fill(lhs, rows * k);
    fill(rhs, static_cast<std::int64_t>(sizes.size()) * k * n);
    out.resize(static_cast<std::size_t>(rows * n));
  }
  status run(std::string_view row, std::int64_t first, std::int64_t rows, std::int64_t group,
             std::vector<std::int32_t> of_groups) {
    const auto groups = static_cast<std::int64_t>(of_groups.size());
    const grouped_matmul_args args{.lhs = view(lhs.data() + first * k, {rows, k}),
                                   .rhs = view(rhs.data() + group * k * n, {groups, k, n}),
                                   .group_sizes = view(of_groups.data(), {groups}),
                                   .out = view(out.data() + first * n, {rows, n})};
    const grouped_matmul_options options;
    const found_operation known = operation_named("grouped_matmul");
    return support::call_here(*known.kind, {known.op, tensors_of(args), &options}, {.row = row});
  }
  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> all;
    for (const bf16 value : out) all.push_back(value.bits);
    return all;
  }
};

TEST(matmul_groups, have_the_bits_that_they_have_alone) {
  for (const support::tested_row& tested : matmul_rows()) {
    const std::string_view row = tested.row->name;
    if (row.find(".f16.") != row.npos) continue;  // tensors are bf16
    if (row.find(".f8_") != row.npos || row.find(".i8.") != row.npos) continue;
    if (row.find("x512") != row.npos) continue;  // takes no groups
    SCOPED_TRACE(row);
    // Alone, rows of sm90 take tiles of rows by columns, in pairs from 256 rows on; together, few
    // rows a group, columns by rows, which are cut evenly and end anywhere.
    for (const std::vector<std::int32_t>& sizes :
         {std::vector<std::int32_t>{130, 0, 61, 300}, {1, 513, 16, 257, 0, 128}, {40, 3, 9}}) {
      const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
      grouped_rows_call together(sizes, rows + 5), alone(sizes, rows + 5);
      std::fill(together.out.begin(), together.out.end(), bf16(7));
      ASSERT_TRUE(together.run(row, 0, rows + 5, 0, sizes));
      std::int64_t first = 0;
      for (std::size_t group = 0; group < sizes.size(); ++group) {
        ASSERT_TRUE(
            alone.run(row, first, sizes[group], static_cast<std::int64_t>(group), {sizes[group]}));
        first += sizes[group];
      }
      // Rows that no group has become 0.
      EXPECT_EQ(together.bits(), alone.bits());
    }
  }
}

// Sizes lie in device memory, where nobody looks at them before.
TEST(matmul_groups, are_cut_off_at_the_rows_and_take_none_for_negative_sizes) {
  grouped_rows_call cut({1}, 150), whole({1}, 150);
  cut.rhs.resize(3 * cut.k * cut.n, bf16(0.5f));
  whole.rhs = cut.rhs;
  ASSERT_TRUE(cut.run({}, 0, 150, 0, {77, INT32_MIN, INT32_MAX}));
  ASSERT_TRUE(whole.run({}, 0, 150, 0, {77, 0, 73}));
  EXPECT_EQ(cut.bits(), whole.bits());
}

}  // namespace
}  // namespace tessera::device_test
