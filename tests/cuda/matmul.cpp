// Grouped matrix products where only a device has something to prove: tiles of every row, side by
// side and cut off, that are copied as they are stored or read element by element; groups by
// themselves, bit for bit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/grouped_matmul/lower.hpp>
#include <tessera/grouped_matmul.hpp>
#include <tessera/spec/problem_text.hpp>

#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

/// Several tiles each way with rests of every kind; the last group ends where a tile does, or rows
/// follow that belong to none.
constexpr std::string_view calls[] = {
    "grouped_matmul lhs=[390,136]T rhs=[5,136,520]T group_sizes=[5]i32",
    "grouped_matmul lhs=[390,136]T rhs=[5,520,136]T group_sizes=[5]i32 rhs_bias=[5,520]f32 "
    "out_init=[390,520]f32 transpose_rhs=true",
    "grouped_matmul lhs=[200,72]T rhs=[3,72,264]T group_sizes=[7]i32 group_offset=2",
    "grouped_matmul_backward lhs=[390,136]T rhs=[3,136,264]T group_sizes=[3]i32 d_out=[390,264]T "
    "d_rhs_bias=[3,264]f32",
    "grouped_matmul_backward lhs=[390,264]T rhs=[3,136,264]T group_sizes=[3]i32 d_out=[390,136]T "
    "transpose_rhs=true",
    "grouped_matmul_backward lhs=[150,300]T rhs=[2,300,140]T group_sizes=[2]i32 "
    "rhs_scale=[2,20,140]f32 d_out=[150,140]T",
    "grouped_matmul_backward lhs=[150,300]T rhs=[2,140,300]T group_sizes=[2]i32 "
    "rhs_scale=[2,4,140]f32 d_out=[150,140]T transpose_rhs=true",
    "matmul lhs=[257,200]T rhs=[200,513]T",
    "matmul lhs=[2,140,72]T rhs=[2,72,264]T",
    "matmul_backward lhs=[257,200]T rhs=[200,513]T d_out=[257,513]T",
};

std::string with_type(std::string_view call, std::string_view type) {
  std::string text;
  for (const char letter : call) {
    if (letter == 'T') {
      text += type;
    } else {
      text += letter;
    }
  }
  return text;
}

class matmul_tiles : public testing::TestWithParam<std::string_view> {
 protected:
  /// The call on every row that runs it.
  static void expect_right(std::string_view call, const support::memory_wishes& memory) {
    const std::size_t space = call.find(' ');
    const found_operation known = operation_named(call.substr(0, space));
    const result<owned_problem> problem = parse_problem(*known.op, call.substr(space + 1));
    ASSERT_TRUE(problem) << problem.message();
    support::random_source random(5);
    support::call_data data(*problem, random, memory);
    ASSERT_TRUE(data.refusal()) << data.refusal().message();
    const support::call_expectation expectation(data.call());
    int ran = 0;
    for (const support::tested_row& row : support::tested_rows()) {
      if (row.kind != known.kind || !support::runs(*row.kind, *row.row, data.problem())) continue;
      std::vector<std::vector<std::byte>> first;
      for (int run = 0; run < 2; ++run) {
        EXPECT_EQ(support::complaints_of_call(*row.kind, data, expectation, {.row = row.row->name},
                                              first),
                  "")
            << row.row->name << ": " << data.text();
      }
      ++ran;
    }
    EXPECT_GE(ran, 2);
  }
};

TEST_P(matmul_tiles, are_right_however_they_are_stored) {
  for (const std::string_view type : {"f32", "f16", "bf16"}) {
    const std::string call = with_type(GetParam(), type);
    SCOPED_TRACE(call);
    expect_right(call, {.row_major = true});
    expect_right(call, {});
  }
}

INSTANTIATE_TEST_SUITE_P(calls, matmul_tiles, testing::ValuesIn(calls),
                         [](const auto& one) { return "call_" + std::to_string(one.index); });

/// Rows of four groups that begin anywhere, and out of a row.
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
  for (const std::string_view row :
       {"grouped_matmul.cuda_sm80.bf16.128x256x32", "grouped_matmul.cuda_sm80.bf16.64x64x32",
        "grouped_matmul.cuda_sm80.f32.128x128x16"}) {
    SCOPED_TRACE(row);
    grouped_rows_call together({130, 0, 61, 200}, 391), alone({130, 0, 61, 200}, 391);
    ASSERT_TRUE(together.run(row, 0, 391, 0, together.sizes));
    std::int64_t first = 0;
    for (std::size_t group = 0; group < alone.sizes.size(); ++group) {
      const std::int32_t rows = alone.sizes[group];
      ASSERT_TRUE(alone.run(row, first, rows, static_cast<std::int64_t>(group), {rows}));
      first += rows;
    }
    EXPECT_EQ(together.bits(), alone.bits());
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
