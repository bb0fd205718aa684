// The header path of matrix products, with this program's instructions: exact products of small
// whole numbers, and what functors make of them before they are rounded.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/grouped_matmul/cpu/direct.hpp>

#include "tests/unit/prim/native.hpp"

namespace {

using namespace tessera;

/// Tiles of the smallest size: every loop over blocks goes round more than once.
struct row {
  static constexpr grouped_matmul_config config{.target = native_cpu_backend,
                                                .block_m = register_rows(native_cpu_backend),
                                                .block_n = register_columns(native_cpu_backend),
                                                .block_k = 32};
};
/// Any functor: the kernel is compiled for one type of them.
using functor = std::function<float(float, const product_position&)>;

/// Rows of cpu_avx512_bf16 take bf16 alone.
using number = bf16;

constexpr std::int64_t m = 37, n = 150, k = 70;

/// Whole numbers from -3 to 3, which sums of `k` products of are exact.
template <class Element>
std::vector<Element> whole_numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<Element> values;
  for (std::int64_t at = 0; at < count; ++at) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(Element(static_cast<float>(seed >> 24) / 255.0f < 0.5f
                                 ? -static_cast<float>(seed >> 16 & 3u)
                                 : static_cast<float>(seed >> 16 & 3u)));
  }
  return values;
}

struct product {
  std::vector<number> lhs = whole_numbers<number>(m * k, 1);
  std::vector<number> rhs = whole_numbers<number>(3 * n * k, 2);
  std::vector<float> bias = whole_numbers<float>(3 * n, 3);
  std::vector<float> init = whole_numbers<float>(m * n, 4);
  std::vector<std::int32_t> sizes{20, 0, 9};  // eight rows are of no group
  std::vector<float> out = std::vector<float>(static_cast<std::size_t>(m * n), -1.0f);

  grouped_matmul_args args() {
    return {.lhs = view(lhs.data(), {m, k}),
            .rhs = view(rhs.data(), {3, k, n}),
            .group_sizes = view(sizes.data(), {3}),
            .rhs_bias = view(bias.data(), {3, n}),
            .out_init = view(init.data(), {m, n}),
            .out = view(out.data(), {m, n})};
  }
  /// -1: of no group.
  static std::int64_t group_of(std::int64_t at) { return at < 20 ? 0 : at < 29 ? 2 : -1; }

  /// Bias, product and initial output of an element.
  float sum(std::int64_t at_row, std::int64_t column) const {
    float sum = init[static_cast<std::size_t>(at_row * n + column)];
    const std::int64_t group = group_of(at_row);
    if (group < 0) return sum;
    sum += bias[static_cast<std::size_t>(group * n + column)];
    for (std::int64_t i = 0; i < k; ++i) {
      sum += static_cast<float>(lhs[static_cast<std::size_t>(at_row * k + i)]) *
             static_cast<float>(rhs[static_cast<std::size_t>((group * k + i) * n + column)]);
    }
    return sum;
  }
};

template <class Out>
void expect_applied(product& problem, const grouped_matmul_args& args, const functor& epilogue,
                    const std::vector<Out>& out) {
  const status done = launch<row>(args, {}, cpu{.threads = 2}, epilogue);
  ASSERT_TRUE(done) << done.message();
  for (std::int64_t at = 0; at < m; ++at) {
    const std::int64_t group = product::group_of(at);
    for (std::int64_t column = 0; column < n; ++column) {
      const float sum = problem.sum(at, column);
      const Out wanted(group < 0 ? sum : epilogue(sum, {group, at, column}));
      ASSERT_EQ(static_cast<float>(out[static_cast<std::size_t>(at * n + column)]),
                static_cast<float>(wanted))
          << "row " << at << ", column " << column << ", sum " << sum;
    }
  }
}

TEST(epilogues, products_are_those_of_the_definition) {
  product problem;
  const status done = launch<row>(problem.args(), {}, cpu{.threads = 2});
  ASSERT_TRUE(done) << done.message();
  for (std::int64_t at = 0; at < m; ++at) {
    for (std::int64_t column = 0; column < n; ++column) {
      ASSERT_EQ(problem.out[static_cast<std::size_t>(at * n + column)], problem.sum(at, column))
          << "row " << at << ", column " << column;
    }
  }
}

TEST(epilogues, functors_see_sums_and_their_places) {
  product problem;
  expect_applied(problem, problem.args(), epilogue::relu{}, problem.out);
  expect_applied(problem, problem.args(), epilogue::scale{0.25f}, problem.out);
  const auto places = [](float x, const product_position& at) {
    return x + static_cast<float>(at.column + 1000 * at.row) * static_cast<float>(at.group + 1);
  };
  expect_applied(problem, problem.args(), places, problem.out);
}

TEST(epilogues, operands_of_the_size_of_out_are_added_and_multiplied) {
  product problem;
  const std::vector<number> residual = whole_numbers<number>(m * n, 5);
  const std::vector<float> gate = whole_numbers<float>(m * (n + 3), 6);
  const epilogue::then both{epilogue::times{gate.data(), n + 3},
                            epilogue::plus{residual.data(), n}};
  expect_applied(problem, problem.args(), both, problem.out);
}

TEST(epilogues, results_are_rounded_once) {
  product problem;
  std::vector<bf16> out(static_cast<std::size_t>(m * n));
  grouped_matmul_args args = problem.args();
  args.out = view(out.data(), {m, n});
  expect_applied(problem, args, epilogue::scale{1.0f / 3}, out);
}

TEST(epilogues, entries_of_a_batch_have_places_of_their_own) {
  product problem;
  constexpr std::int64_t rows = 12;
  const std::vector<float> residual = whole_numbers<float>(3 * rows * n, 7);
  const grouped_matmul_args args{.lhs = view(problem.lhs.data(), {3, rows, k}),
                                 .rhs = view(problem.rhs.data(), {3, k, n}),
                                 .out = view(problem.out.data(), {3, rows, n})};
  ASSERT_TRUE(launch<row>(args));
  std::vector<float> wanted = problem.out;
  for (std::size_t at = 0; at < residual.size(); ++at) wanted[at] += residual[at];
  ASSERT_TRUE(launch<row>(args, {}, cpu{}, functor(epilogue::plus{residual.data(), n, rows * n})));
  EXPECT_EQ(problem.out, wanted);
}

/// Against the definitions in double precision, within a few roundings of float.
TEST(epilogues, activations_are_what_they_are_called) {
  const product_position at{};
  const double bound = 4 * std::numeric_limits<float>::epsilon();
  for (float x = -12; x <= 12; x += 0.0625f) {
    const double exact = x, size = std::max(1.0, std::abs(exact));
    EXPECT_NEAR(epilogue::silu{}(x, at), exact / (1 + std::exp(-exact)), bound * size) << x;
    EXPECT_NEAR(epilogue::gelu{}(x, at), exact * 0.5 * std::erfc(-exact / std::sqrt(2.0)),
                bound * size)
        << x;
    const double inner =
        std::sqrt(2 / std::acos(-1.0)) * (exact + 0.044715 * exact * exact * exact);
    EXPECT_NEAR(epilogue::gelu_tanh{}(x, at), 0.5 * exact * (1 + std::tanh(inner)), bound * size)
        << x;
    EXPECT_EQ(epilogue::relu{}(x, at), std::max(x, 0.0f));
  }
  EXPECT_TRUE(std::isnan(epilogue::relu{}(std::numeric_limits<float>::quiet_NaN(), at)));
}

TEST(epilogues, gradients_take_none) {
  product problem;
  std::vector<number> d_lhs(problem.lhs.size());
  grouped_matmul_args args = problem.args();
  args.d_out = args.out;
  args.out = args.out_init = args.rhs_bias = {};
  args.d_lhs = view(d_lhs.data(), {m, k});
  const status refused = launch<row>(args, {}, cpu{}, functor(epilogue::relu{}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.message(), "d_out: is given, the gradients of a product take no epilogue");
  args.out = view(problem.out.data(), {m, n});
  EXPECT_FALSE(launch<row>(args, {}, cpu{}));
}

TEST(epilogues, bad_calls_and_operands_of_other_types_are_refused) {
  product problem;
  grouped_matmul_args args = problem.args();
  args.out = view(problem.out.data(), {m - 1, n});
  const status refused = launch<row>(args, {}, cpu{}, functor(epilogue::relu{}));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.message().find("36"), std::string::npos) << refused.message();
  std::vector<float> lhs(static_cast<std::size_t>(m * k), 1.0f);
  std::vector<float> rhs(static_cast<std::size_t>(3 * n * k), 1.0f);
  args = problem.args();
  args.lhs = view(lhs.data(), {m, k});
  args.rhs = view(rhs.data(), {3, k, n});
  const status floats = launch<row>(args, {}, cpu{});
  if (!has_bf16_products(native_cpu_backend)) {
    EXPECT_TRUE(floats) << floats.message();
  } else {
    EXPECT_EQ(floats.message(), "operands are f32, the row multiplies bf16");
  }
}

}  // namespace
