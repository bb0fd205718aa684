// Every row of the build over generated problems: right within its tolerance, nothing written
// outside the outputs, no input changed, and the same bits for any number of threads.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::instance;

constexpr double most_work = 1e5;

using snapshot = std::vector<std::vector<std::byte>>;

snapshot bytes_of(flash_data& data) {
  snapshot bytes;
  for (const guarded_tensor* output : data.outputs()) bytes.push_back(output->bytes());
  return bytes;
}

class rows : public testing::TestWithParam<instance> {
 protected:
  static const tessera::attention_config& config() {
    return GetParam().config_as<tessera::attention_config>();
  }

  void SetUp() override {
    if (!runs_here(GetParam().target)) {
      GTEST_SKIP() << name_of(GetParam().target) << " does not run here";
    }
    limits_ = limits_of(config());
    limits_.work = most_work;
  }

  /// Runs the case on the row with 1 and 2 threads and judges it.
  void expect_right(const flash_case& one) {
    flash_data data(one);
    const auto problem = problem_here(data.args(), data.options(), one.op);
    ASSERT_TRUE(takes(GetParam(), problem));
    const flash_expectation expectation(data.args(), data.options());
    const std::uint64_t inputs = data.input_digest();
    snapshot first;
    for (const int threads : {1, 2, 1}) {
      data.reset_outputs();
      const auto done =
          run(one.op, data.args(), data.options(), {.row = GetParam().name, .threads = threads});
      ASSERT_TRUE(done) << done.message();
      if (first.empty()) {
        first = bytes_of(data);
        EXPECT_EQ(expectation.complaints(), "");
        EXPECT_TRUE(data.margins_intact()) << "bytes outside the outputs were written";
      }
      EXPECT_TRUE(bytes_of(data) == first) << "other bits with " << threads << " threads";
    }
    EXPECT_EQ(data.input_digest(), inputs) << "an input was changed";
  }

  case_limits limits_{};
};

TEST_P(rows, are_right_on_random_problems) {
  const bool decode = config().phase == tessera::attention_phase::decode;
  for (std::uint64_t index = 0; index < 40; ++index) {
    SCOPED_TRACE("case " + std::to_string(index));
    random_source random = stream(11, index);
    case_limits limits = limits_;
    if (decode && random.chance(0.8)) limits.decode_rows = tessera::max_decode_rows;
    expect_right(random_case(random, limits));
    if (HasFailure()) return;
  }
}

TEST_P(rows, are_right_with_each_trait_alone) {
  for (const flash_trait trait : all_flash_traits) {
    if (!config().features.contains(feature_of(trait))) continue;
    SCOPED_TRACE(name_of(trait));
    for (std::uint64_t index = 0; index < 2; ++index) {
      random_source random = stream(12, 100 * index + static_cast<std::uint64_t>(trait));
      expect_right(case_with(std::vector{trait}, random, limits_));
      if (HasFailure()) return;
    }
  }
}

TEST_P(rows, are_right_with_long_keys) {
  // Several tiles and several splits: the masks, the running maximum and the merge between them.
  case_limits limits = limits_;
  for (const std::int64_t kv_len : {511, 1025, 2300}) {
    SCOPED_TRACE(kv_len);
    random_source random = stream(13, static_cast<std::uint64_t>(kv_len));
    flash_case one;
    choose_sizes(one, random, limits);
    one.batch = one.kv_heads = 1;
    one.q_heads = 2;
    one.q_len = 3;
    one.kv_len = kv_len;
    one.options.causal = kv_len % 2 == 1;
    if (kv_len == 1025) one.options.window_left = 600;
    one.seed = random.bits();
    expect_right(one);
  }
}

TEST_P(rows, are_right_with_each_pair_of_traits) {
  case_limits limits = limits_;
  limits.work = 3e4;
  const auto has = [&](flash_trait trait) { return config().features.contains(feature_of(trait)); };
  for (const flash_trait first : all_flash_traits) {
    for (const flash_trait second : all_flash_traits) {
      if (second <= first || !compatible(first, second) || !has(first) || !has(second)) continue;
      SCOPED_TRACE(std::string(name_of(first)) + " " + std::string(name_of(second)));
      random_source random =
          stream(14, 100 * static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(second));
      expect_right(case_with(std::vector{first, second}, random, limits));
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(table, rows, testing::ValuesIn(tested_rows()),
                         [](const auto& row) { return test_name(row.param.name); });

}  // namespace
