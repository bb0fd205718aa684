// Every option alone and in pairs, through the row the library chooses, for each operand type.
#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::dtype;

class options : public testing::TestWithParam<flash_trait> {};

void expect_right(const flash_case& one) {
  flash_data data(one);
  const flash_expectation expectation(data.args(), data.options());
  const auto done = run(one.op, data.args(), data.options());
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(expectation.complaints(), "");
  EXPECT_TRUE(data.margins_intact()) << "bytes outside the outputs were written";
}

TEST_P(options, are_right_with_every_other_option) {
  for (const flash_trait other : all_flash_traits) {
    if (!compatible(GetParam(), other)) continue;
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
      SCOPED_TRACE(std::string(name_of(other)) + " " + std::string(name_of(type)));
      random_source random =
          stream(static_cast<std::uint64_t>(GetParam()) * 100 + static_cast<std::uint64_t>(other),
                 static_cast<std::uint64_t>(type));
      case_limits limits;
      limits.type = type;
      for (int repeat = 0; repeat < 3; ++repeat) {
        expect_right(case_with(std::array{GetParam(), other}, random, limits));
      }
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(pairs, options, testing::ValuesIn(all_flash_traits),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST(scaled_dot_product_attention, is_right_with_each_option_it_has) {
  for (const flash_trait trait : all_flash_traits) {
    if (!takes(tessera::flash_op::scaled_dot_product_attention, trait)) continue;
    SCOPED_TRACE(name_of(trait));
    for (std::uint64_t index = 0; index < 5; ++index) {
      random_source random = stream(5, index * 100 + static_cast<std::uint64_t>(trait));
      case_limits limits;
      limits.head_dim = limits.v_head_dim = random_head_dim(random);
      flash_case one = case_with(std::array{trait}, random, limits);
      one.op = tessera::flash_op::scaled_dot_product_attention;
      expect_right(one);
    }
  }
}

}  // namespace
