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

#include <tessera/families/attention/problem_text.hpp>

#include "tests/reference/flash_attention.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::dtype;

TEST(comparator, finds_nan_and_infinity_in_the_wrong_place) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> want{1.0, nan, -HUGE_VAL, 2.0};
  EXPECT_TRUE(judged(compare(want, want, 2, error_scale::row), 0.0, 0.0).passed);
  for (std::size_t at = 0; at < want.size(); ++at) {
    for (const double wrong : {nan, HUGE_VAL, -HUGE_VAL, 5.0}) {
      std::vector<double> ours = want;
      ours[at] = wrong;
      if ((std::isnan(want[at]) && std::isnan(wrong)) || want[at] == wrong) continue;
      const comparison found = judged(compare(ours, want, 2, error_scale::row), 0.25, 0.5);
      EXPECT_FALSE(found.passed) << at << " " << wrong;
      EXPECT_EQ(found.worst, static_cast<std::int64_t>(at));
    }
  }
}

TEST(comparator, scales_errors_as_documented) {
  // Rows of two; the tensor's largest is 100, so the second row's scale is 1, not 0.5.
  const std::vector<double> want{100.0, 50.0, 0.5, 0.25}, ours{100.0, 52.0, 0.5, 0.26};
  EXPECT_NEAR(compare(ours, want, 2, error_scale::row).error, 2.0 / 100.0, 1e-12);
  EXPECT_EQ(compare(ours, want, 2, error_scale::row).worst, 1);
  EXPECT_NEAR(compare(ours, want, 2, error_scale::unit).error, 2.0 / 50.0, 1e-12);
  EXPECT_NEAR(compare(ours, want, 2, error_scale::tensor).error, 2.0 / 100.0, 1e-12);
  const std::vector<double> last{100.0, 50.0, 0.5, 0.29};
  EXPECT_NEAR(compare(last, want, 2, error_scale::row).error, 0.04, 1e-12);
  EXPECT_FALSE(compare({}, want, 2, error_scale::row).specials_agree);
  const std::vector<double> zero{0.0}, small{1e-30};
  EXPECT_EQ(compare(small, zero, 1, error_scale::row).error, HUGE_VAL);
}

TEST(comparator, bound_is_the_larger_of_twice_the_peer_and_the_floor) {
  comparison found;
  found.error = 3e-6;
  EXPECT_TRUE(judged(found, 0.0, 5e-6).passed);
  EXPECT_FALSE(judged(found, 1e-6, 1e-6).passed);
  EXPECT_TRUE(judged(found, 1.6e-6, 1e-6).passed);
  EXPECT_EQ(floor_of("lse", dtype::bf16), floor_of("out", dtype::f32));
  EXPECT_LT(floor_of("out", dtype::f16), floor_of("out", dtype::bf16));
}

flash_case small_case() {
  flash_case one;
  one.q_len = 9;
  one.kv_len = 11;
  one.head_dim = one.v_head_dim = 6;
  one.options.causal = true;
  one.seed = 4;
  return one;
}

/// The truth written to the outputs as a perfect kernel would.
void write_truth(const flash_data& data, const flash_expectation& truth) {
  tessera::reference::for_each_element(data.args().out, [&](auto flat, auto offset) {
    store(data.args().out, offset, truth.truth().out[static_cast<std::size_t>(flat)]);
  });
  tessera::reference::for_each_element(data.args().lse, [&](auto flat, auto offset) {
    store(data.args().lse, offset, truth.truth().lse[static_cast<std::size_t>(flat)]);
  });
}

TEST(judge, accepts_the_truth_and_rejects_each_single_wrong_element) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    flash_case one = small_case();
    one.type = type;
    flash_data data(one);
    const flash_expectation truth(data.args(), data.options());
    EXPECT_NE(truth.complaints(), "") << "outputs not written yet";
    write_truth(data, truth);
    EXPECT_EQ(truth.complaints(), "");
    tessera::reference::for_each_element(data.args().out, [&](auto flat, auto offset) {
      const double right = truth.truth().out[static_cast<std::size_t>(flat)];
      store(data.args().out, offset, right + 0.1);
      EXPECT_NE(truth.complaints(), "") << flat;
      store(data.args().out, offset, right);
    });
  }
}

TEST(guards, notice_a_byte_beside_the_tensor) {
  tensor_layout layout;
  layout.padding = {0, 0, 0, 3, 0};
  guarded_tensor tensor(dtype::f32, 4, {1, 2, 2, 5}, layout);
  EXPECT_TRUE(tensor.untouched());
  tensor.fill([](auto flat) { return static_cast<double>(flat); });
  EXPECT_FALSE(tensor.untouched());
  EXPECT_TRUE(tensor.margins_intact());
  for (const std::int64_t beside : {-1, 5, 6, 7, 13, 29}) {
    const float before = tessera::reference::load<float>(tensor.view().data, beside);
    store(tensor.view(), beside, 1.0);
    EXPECT_FALSE(tensor.margins_intact()) << beside;
    std::memcpy(static_cast<float*>(tensor.view().data) + beside, &before, sizeof before);
    EXPECT_TRUE(tensor.margins_intact()) << beside;
  }
  tensor.reset();
  EXPECT_TRUE(tensor.untouched());
}

TEST(poison, lies_exactly_where_no_row_looks) {
  flash_case one = small_case();
  one.k_lengths = {7};
  one.options.window_left = 2;
  one.q_lengths = {4};
  const flash_data data(one);
  // Rows 0 to 3 sit at keys 3 to 6 and see two more each: keys 1 to 6.
  for (std::int64_t j = 0; j < one.kv_len; ++j) {
    bool finite = true;
    for (std::int64_t d = 0; d < one.head_dim; ++d) {
      const double value =
          tessera::reference::at(data.args().k, std::int64_t{0}, j, std::int64_t{0}, d);
      finite = finite && std::isfinite(value);
    }
    EXPECT_EQ(finite, j >= 1 && j <= 6) << j;
  }
  for (std::int64_t i = 0; i < one.q_len; ++i) {
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
    const flash_case one = random_case(random, {.work = 2e4});
    const flash_data data(one);
    const auto problem = tessera::problem_of(data.args(), data.options(), one.op);
    seen = seen | features_needed(problem.tensors, problem.options);
    types.insert(one.type);
    groups.insert(one.q_heads / one.kv_heads);
    dims.insert(one.head_dim);
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
  flash_case one = small_case();
  one.q_heads = 2;
  const flash_data data(one);
  const auto whole = tessera::reference::flash_attention<>(data.args(), data.options());
  const tessera::reference::flash_head<tessera::reference::exact> head(data.args(), data.options(),
                                                                       0, 1);
  const auto row = head.row(5);
  EXPECT_EQ(row.lse, whole.lse[static_cast<std::size_t>(one.q_len + 5)]);
  EXPECT_TRUE(std::equal(row.out.begin(), row.out.end(),
                         whole.out.begin() + (5 * one.q_heads + 1) * one.v_head_dim));
}

}  // namespace
