// The judge judged: the comparator, the guards and the generators against calls whose verdict is
// known. The oracle itself is judged in golden.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/problem_text.hpp>

#include "tests/reference/flash_attention.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::dtype;

flash_case small_case() {
  flash_case example;
  example.q_len = 9;
  example.kv_len = 11;
  example.head_dim = example.v_head_dim = 6;
  example.options.causal = true;
  example.seed = 4;
  return example;
}

TEST(poison, lies_exactly_where_no_row_looks) {
  flash_case example = small_case();
  example.k_lengths = {7};
  example.options.window_left = 2;
  example.q_lengths = {4};
  const flash_data data(example);
  // Rows 0 to 3 sit at keys 3 to 6 and see two more each: keys 1 to 6.
  for (std::int64_t j = 0; j < example.kv_len; ++j) {
    bool finite = true;
    for (std::int64_t d = 0; d < example.head_dim; ++d) {
      const double value =
          tessera::reference::at(data.args().k, std::int64_t{0}, j, std::int64_t{0}, d);
      finite = finite && std::isfinite(value);
    }
    EXPECT_EQ(finite, j >= 1 && j <= 6) << j;
  }
  for (std::int64_t i = 0; i < example.q_len; ++i) {
    const double value =
        tessera::reference::at(data.args().q, std::int64_t{0}, i, std::int64_t{0}, std::int64_t{0});
    EXPECT_EQ(std::isfinite(value), i < 4) << i;
  }
}

TEST(generator, gives_the_same_case_for_the_same_seed) {
  for (std::uint64_t index = 0; index < 50; ++index) {
    random_source first = stream(9, index), second = stream(9, index);
    const flash_data a(random_case(first)), b(random_case(second));
    EXPECT_EQ(to_text(tessera::problem_of(a.args(), a.options())),
              to_text(tessera::problem_of(b.args(), b.options())));
    for (const auto member : {&tessera::flash_attention_args::q, &tessera::flash_attention_args::k,
                              &tessera::flash_attention_args::v}) {
      const comparison found =
          compare(tessera::reference::to_doubles(a.args().*member),
                  tessera::reference::to_doubles(b.args().*member), 1, error_scale::equal);
      EXPECT_TRUE(judged(found, 0.0, 0.0).passed);
    }
  }
}

TEST(generator, stays_within_its_limits_and_reaches_every_feature_and_edge) {
  tessera::attention_features seen{};
  std::set<dtype> types;
  std::set<std::int64_t> groups, dims;
  int seeing_rows = 0, empty_rows = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    random_source random = stream(10, index);
    const flash_case example = random_case(random, {.work = 2e4});
    const flash_data data(example);
    const auto problem = tessera::problem_of(data.args(), data.options(), example.op);
    seen = seen | features_needed(problem.tensors, problem.options);
    types.insert(example.type);
    groups.insert(example.q_heads / example.kv_heads);
    dims.insert(example.head_dim);
    if (index % 10 != 0) continue;
    const auto truth = tessera::reference::flash_attention<>(data.args(), data.options());
    for (const double lse : truth.lse) ++(lse == -HUGE_VAL ? empty_rows : seeing_rows);
  }
  EXPECT_EQ(seen, tessera::every_feature);
  EXPECT_EQ(types.size(), 3u);
  EXPECT_TRUE(groups.contains(1) && groups.contains(5) && groups.contains(8));
  EXPECT_TRUE(dims.contains(1) && dims.contains(3) && dims.contains(256));
  EXPECT_GT(seeing_rows, empty_rows) << "most rows should have something to compute";
}

TEST(flash_row, of_the_oracle_is_that_of_the_whole_call) {
  flash_case example = small_case();
  example.q_heads = 2;
  const flash_data data(example);
  const auto whole = tessera::reference::flash_attention<>(data.args(), data.options());
  const tessera::reference::flash_head<tessera::reference::exact> head(data.args(), data.options(),
                                                                       0, 1);
  const auto row = head.row(5);
  EXPECT_EQ(row.lse, whole.lse[static_cast<std::size_t>(example.q_len + 5)]);
  EXPECT_TRUE(std::equal(row.out.begin(), row.out.end(),
                         whole.out.begin() + (5 * example.q_heads + 1) * example.v_head_dim));
}

}  // namespace
