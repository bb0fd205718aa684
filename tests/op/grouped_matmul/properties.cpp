// What the declaration of grouped matrix products cannot say: groups by themselves, bit for bit;
// results in the place of the initial output; sizes that no program would write; gradients that
// belong together.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/grouped_matmul.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/scaled_matmul.hpp>

#include "tests/support/random.hpp"

namespace tessera {
namespace {

/// Three groups, one of them empty, and rows behind the last; sides beyond a small tile.
struct grouped_call {
  static constexpr std::int64_t m = 150, k = 300, n = 140, groups = 3;
  std::vector<float> lhs, rhs, out, d_out;
  std::vector<std::int32_t> sizes{77, 0, 60};

  grouped_call() {
    support::random_source random(7);
    const auto fill = [&](std::vector<float>& to, std::int64_t count) {
      for (std::int64_t at = 0; at < count; ++at) to.push_back(static_cast<float>(random.bell()));
    };
    fill(lhs, m * k);
    fill(rhs, groups * k * n);
    fill(d_out, m * n);
    out.assign(static_cast<std::size_t>(m * n), 9.0f);
  }
  grouped_matmul_args args() {
    return {.lhs = view(lhs.data(), {m, k}),
            .rhs = view(rhs.data(), {groups, k, n}),
            .group_sizes = view(sizes.data(), {groups}),
            .out = view(out.data(), {m, n})};
  }
};

TEST(grouped_matmul, rows_of_a_group_have_the_bits_that_they_have_alone) {
  grouped_call all;
  ASSERT_TRUE(grouped_matmul(all.args()));
  for (std::int64_t row = 0; row < 137; row += 17) {
    const std::int64_t group = row < 77 ? 0 : 2;
    std::vector<float> alone(static_cast<std::size_t>(all.n));
    std::int32_t one = 1;
    ASSERT_TRUE(
        grouped_matmul({.lhs = view(all.lhs.data() + row * all.k, {1, all.k}),
                        .rhs = view(all.rhs.data() + group * all.k * all.n, {1, all.k, all.n}),
                        .group_sizes = view(&one, {1}),
                        .out = view(alone.data(), {1, all.n})}));
    for (std::int64_t column = 0; column < all.n; ++column) {
      ASSERT_EQ(alone[static_cast<std::size_t>(column)],
                all.out[static_cast<std::size_t>(row * all.n + column)])
          << row << ' ' << column;
    }
  }
}

TEST(grouped_matmul, may_write_where_the_initial_output_lies) {
  grouped_call apart, in_place;
  std::vector<float> init = apart.d_out;
  in_place.out = init;
  grouped_matmul_args args = apart.args();
  args.out_init = view(init.data(), {apart.m, apart.n});
  ASSERT_TRUE(grouped_matmul(args));
  args = in_place.args();
  args.out_init = args.out;
  ASSERT_TRUE(grouped_matmul(args));
  EXPECT_EQ(in_place.out, apart.out);
}

TEST(grouped_matmul, cuts_off_sizes_beyond_the_rows_and_takes_none_for_negative_ones) {
  grouped_call cut, whole;
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  cut.sizes = {77, -most, most};
  whole.sizes = {77, 0, 73};
  ASSERT_TRUE(grouped_matmul(cut.args()));
  ASSERT_TRUE(grouped_matmul(whole.args()));
  EXPECT_EQ(cut.out, whole.out);
}

TEST(grouped_matmul, needs_the_sizes_of_all_groups_of_rhs) {
  grouped_call call;
  EXPECT_EQ(grouped_matmul(call.args(), {.group_offset = 1}).message(),
            "group_sizes: has 3 groups, rhs has 3 from group_offset 1 on");
  EXPECT_EQ(call.out.front(), 9.0f);
}

// The product is linear in each operand: the sums of operand times gradient are those of out times
// d_out.
TEST(grouped_matmul_backward, gives_gradients_of_a_product) {
  grouped_call call;
  ASSERT_TRUE(grouped_matmul(call.args()));
  std::vector<float> d_lhs(call.lhs.size()), d_rhs(call.rhs.size());
  grouped_matmul_args args = call.args();
  args.out = {};
  args.d_out = view(call.d_out.data(), {call.m, call.n});
  args.d_lhs = view(d_lhs.data(), {call.m, call.k});
  args.d_rhs = view(d_rhs.data(), {call.groups, call.k, call.n});
  ASSERT_TRUE(grouped_matmul_backward(args));
  double expected = 0, by_lhs = 0, by_rhs = 0, size = 0;
  for (std::size_t at = 0; at < call.out.size(); ++at) {
    expected += double{call.out[at]} * double{call.d_out[at]};
    size += std::fabs(double{call.out[at]} * double{call.d_out[at]});
  }
  for (std::size_t at = 0; at < d_lhs.size(); ++at) by_lhs += double{call.lhs[at]} * d_lhs[at];
  for (std::size_t at = 0; at < d_rhs.size(); ++at) by_rhs += double{call.rhs[at]} * d_rhs[at];
  const double bound = size * 0x1p-24 * std::sqrt(double{call.k});
  EXPECT_NEAR(by_lhs, expected, bound);
  EXPECT_NEAR(by_rhs, expected, bound);
}

// Whole numbers below 2^24 are exact in any order: products of any bytes, with scales of one.
void expect_whole_numbers(std::int64_t k, std::int64_t n) {
  constexpr std::int64_t m = 40, groups = 3;
  const std::int64_t parts = (k + 127) / 128;
  support::random_source random(11);
  std::vector<std::int8_t> lhs, rhs;
  const auto fill = [&](std::vector<std::int8_t>& to, std::int64_t count) {
    for (std::int64_t at = 0; at < count; ++at) {
      to.push_back(static_cast<std::int8_t>(static_cast<int>(random.below(256)) - 128));
    }
  };
  fill(lhs, m * k), fill(rhs, groups * n * k);
  std::vector<std::int32_t> sizes{19, 0, 15};  // six rows are of no group
  std::vector<float> ones(std::max(m, groups * n) * parts, 1.0f), out(m * n, 9.0f);
  for (const product_scales how : {product_scales::blocks, product_scales::rows}) {
    const bool blocks = how == product_scales::blocks;
    const std::int64_t of_row = blocks ? parts : 1, of_matrix = blocks ? (n + 127) / 128 : n;
    const status done =
        scaled_grouped_matmul({.lhs = view(lhs.data(), {m, k}),
                               .rhs = view(rhs.data(), {groups, n, k}),
                               .group_sizes = view(sizes.data(), {groups}),
                               .lhs_scale = view(ones.data(), {m, of_row}),
                               .rhs_scale = view(ones.data(), {groups, of_matrix, of_row}),
                               .out = view(out.data(), {m, n})},
                              {.scales = how});
    ASSERT_TRUE(done) << done.message();
    for (std::int64_t row = 0; row < m; ++row) {
      const std::int64_t group = row < 19 ? 0 : row < 34 ? 2 : -1;
      for (std::int64_t column = 0; column < n; ++column) {
        std::int64_t sum = 0;
        for (std::int64_t i = 0; group >= 0 && i < k; ++i) {
          sum += std::int64_t{lhs[static_cast<std::size_t>(row * k + i)]} *
                 rhs[static_cast<std::size_t>((group * n + column) * k + i)];
        }
        ASSERT_EQ(out[static_cast<std::size_t>(row * n + column)], static_cast<float>(sum))
            << row << ", " << column;
      }
    }
  }
}
// One block of the summed axis and several, and more than sums in 32 bits may have; whole registers
// of columns and others.
TEST(scaled_grouped_matmul, sums_of_bytes_are_whole_numbers) {
  expect_whole_numbers(1000, 150);
  expect_whole_numbers(3100, 160);
  expect_whole_numbers(65700, 6);
}

/// A result of 8 bits: which type, and how many scales its rows and columns have.
struct coded_result {
  dtype type;
  std::int64_t rows, blocks;
};

/// The code next to a number.
std::uint8_t code_of(dtype type, float x) {
  if (type == dtype::i8) return static_cast<std::uint8_t>(prim::nearest<std::int8_t>(x));
  return type == dtype::f8_e5m2 ? prim::nearest<f8_e5m2>(x).bits : prim::nearest<f8_e4m3>(x).bits;
}

TEST(grouped_matmul, results_of_8_bits_are_the_codes_next_to_scaled_results_of_floats) {
  grouped_call call;
  constexpr std::int64_t blocks = 2;
  const std::size_t elements = call.out.size();
  for (const coded_result& how :
       {coded_result{dtype::i8, call.m, blocks}, coded_result{dtype::f8_e4m3, call.m, 1},
        coded_result{dtype::f8_e5m2, 1, blocks}, coded_result{dtype::f8_e4m3, 1, 1}}) {
    support::random_source random(19);
    std::vector<float> scales;
    for (std::int64_t at = 0; at < how.rows * how.blocks; ++at) {
      scales.push_back(random.pick({0.125f, 0.3f, 1.0f, 5.0f}));
    }
    std::vector<std::uint8_t> codes(elements, 0x55);
    grouped_matmul_args args = call.args();
    args.residual = view(call.d_out.data(), {call.m, call.n});
    const grouped_matmul_options options{.activation = product_activation::silu};
    ASSERT_TRUE(grouped_matmul(args, options));
    args.out = view(codes.data(), {call.m, call.n});
    args.out.type = how.type;
    args.out_code_scale = view(scales.data(), {how.rows, how.blocks});
    const status done = grouped_matmul(args, options);
    ASSERT_TRUE(done) << done.message();
    for (std::size_t at = 0; at < elements; ++at) {
      const auto place = static_cast<std::int64_t>(at);
      const std::int64_t row = how.rows == 1 ? 0 : place / call.n;
      const std::int64_t block = how.blocks == 1 ? 0 : place % call.n / 128;
      const float scale = scales[static_cast<std::size_t>(row * how.blocks + block)];
      ASSERT_EQ(codes[at], code_of(how.type, call.out[at] / scale)) << at;
    }
  }
}

TEST(grouped_matmul, results_of_8_bits_of_what_is_not_finite_are_nan_or_the_last_codes) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> lhs{1.0f}, rhs(5, 1.0f);
  std::vector<float> residual{std::nanf(""), infinite, -infinite, 1e30f, 0.5f};
  const auto codes_of = [&](dtype type) {
    std::vector<std::uint8_t> codes(rhs.size(), 0x55);
    grouped_matmul_args args{.lhs = view(lhs.data(), {1, 1}),
                             .rhs = view(rhs.data(), {1, 5}),
                             .out = view(codes.data(), {1, 5}),
                             .residual = view(residual.data(), {1, 5})};
    args.out.type = type;
    EXPECT_TRUE(matmul(args));
    return codes;
  };
  using bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(codes_of(dtype::i8), (bytes{0, 127, 0x80, 127, 2}));
  EXPECT_EQ(codes_of(dtype::f8_e4m3), (bytes{0x7f, 0x7e, 0xfe, 0x7e, 0x3c}));
  EXPECT_EQ(codes_of(dtype::f8_e5m2), (bytes{0x7f, 0x7b, 0xfb, 0x7b, 0x3e}));
}

// Vectors of nothing have no memory.
TEST(grouped_matmul, without_groups_gives_zeros) {
  grouped_call call;
  std::vector<float> no_weights, d_lhs(call.lhs.size(), 9.0f);
  std::vector<std::int32_t> no_sizes;
  grouped_matmul_args args = call.args();
  args.rhs = view(no_weights.data(), {0, call.k, call.n});
  args.group_sizes = view(no_sizes.data(), {0});
  const status done = grouped_matmul(args);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(call.out, std::vector<float>(call.out.size(), 0.0f));
  call.out.assign(call.out.size(), 9.0f);
  const auto planned = plan(problem_of(args, {}, grouped_matmul_op::grouped_matmul));
  ASSERT_TRUE(planned) << planned.message();
  ASSERT_TRUE(planned->run(args));
  EXPECT_EQ(call.out, std::vector<float>(call.out.size(), 0.0f));
  args.out = {};
  args.d_out = view(call.d_out.data(), {call.m, call.n});
  args.d_lhs = view(d_lhs.data(), {call.m, call.k});
  const status led_back = grouped_matmul_backward(args);
  ASSERT_TRUE(led_back) << led_back.message();
  EXPECT_EQ(d_lhs, std::vector<float>(d_lhs.size(), 0.0f));
}

TEST(scaled_grouped_matmul, without_groups_gives_zeros) {
  constexpr std::int64_t m = 40, k = 200, n = 150;
  std::vector<std::int8_t> lhs(m * k, 1), no_weights;
  std::vector<float> lhs_scale(m * 2, 1.0f), no_scales, out(m * n, 9.0f);
  std::vector<std::int32_t> no_sizes;
  const status done = scaled_grouped_matmul({.lhs = view(lhs.data(), {m, k}),
                                             .rhs = view(no_weights.data(), {0, n, k}),
                                             .group_sizes = view(no_sizes.data(), {0}),
                                             .lhs_scale = view(lhs_scale.data(), {m, 2}),
                                             .rhs_scale = view(no_scales.data(), {0, 2, 2}),
                                             .out = view(out.data(), {m, n})});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(out, std::vector<float>(out.size(), 0.0f));
}

}  // namespace
}  // namespace tessera
