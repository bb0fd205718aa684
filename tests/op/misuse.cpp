// Bad input: every refusal names the tensor or option, the fact and both numbers, and leaves every
// byte of every output as it was.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_mutations.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::flash_op;
using tessera::status_code;

// Calls that have, between them, every tensor and option that a mutation may want.
std::vector<flash_case> legal_calls() {
  flash_case base;
  base.batch = 2;
  base.q_len = 5;
  base.kv_len = 7;
  base.q_heads = 4;
  base.kv_heads = 2;
  base.head_dim = 16;
  base.v_head_dim = 8;
  base.seed = 1;

  flash_case dense = base;
  dense.bias_pre = dense.bias_post = score_axes{};
  dense.mask = score_axes{.type = tessera::dtype::u8};
  dense.segments = segment_kind::separate;
  dense.sink_count = 2;
  dense.q_lengths = {5, 3};
  dense.k_lengths = {7, 0};
  dense.op = flash_op::attention;
  dense.weights = tessera::dtype::f32;
  dense.options.dropout_probability = 0.25;
  dense.wants_dropout_mask = true;

  flash_case packed = base;
  packed.packed = true;
  packed.batch = 3;
  packed.q_lengths = {2, 0, 3};
  packed.k_lengths = {4, 3, 0};

  flash_case same_length = base;
  same_length.kv_len = 5;
  same_length.segments = segment_kind::shared;

  flash_case plain = base;
  plain.v_head_dim = 16;
  plain.op = flash_op::scaled_dot_product_attention;
  return {base, dense, packed, same_length, plain};
}

bool contains_all(const std::string& message, const std::vector<std::string_view>& words) {
  return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
    return message.find(word) != std::string::npos;
  });
}

class misuse : public testing::TestWithParam<flash_mutation> {};

TEST_P(misuse, is_refused_with_a_reason_and_outputs_untouched) {
  int applied = 0;
  for (const flash_case& legal : legal_calls()) {
    flash_data data(legal);
    flash_call call(data);
    if (!GetParam().apply(call)) continue;
    ++applied;
    if (!call.integers.empty() && !sees_values_here()) {
      GTEST_SKIP() << "values of integer tensors are not looked at here";
    }
    const std::uint64_t inputs = data.input_digest();
    const tessera::status done = run(call.op, call.args, call.options);
    ASSERT_FALSE(done) << "accepted";
    EXPECT_EQ(done.code(), status_code::invalid_argument) << done.message();
    EXPECT_TRUE(contains_all(done.message(), GetParam().words)) << done.message();
    EXPECT_EQ(done.message().find('\n'), std::string::npos) << done.message();
    EXPECT_TRUE(data.outputs_untouched());
    EXPECT_EQ(data.input_digest(), inputs);
  }
  EXPECT_GT(applied, 0) << "the mutation fits none of the calls";
}

INSTANTIATE_TEST_SUITE_P(calls, misuse, testing::ValuesIn(all_mutations()), [](const auto& row) {
  return std::to_string(row.index) + "_" + test_name(row.param.name);
});

TEST(misuse_base, the_legal_calls_are_legal) {
  for (const flash_case& legal : legal_calls()) {
    flash_data data(legal);
    const auto done = run(legal.op, data.args(), data.options());
    EXPECT_TRUE(done) << done.message();
  }
}

TEST(misuse_base, names_are_unique) {
  std::set<std::string_view> names;
  for (const flash_mutation& one : all_mutations()) EXPECT_TRUE(names.insert(one.name).second);
}

TEST(override, an_unknown_row_is_refused_by_name) {
  flash_data data(legal_calls()[0]);
  const auto done = run(flash_op::flash_attention, data.args(), data.options(),
                        {.row = "attention.cpu_generic.f32.nonsense"});
  EXPECT_EQ(done.code(), status_code::unknown_row);
  EXPECT_NE(done.message().find("attention.cpu_generic.f32.nonsense"), std::string::npos)
      << done.message();
  EXPECT_TRUE(data.outputs_untouched());
}

TEST(override, a_row_that_cannot_take_the_problem_is_refused_and_never_replaced) {
  flash_data data(legal_calls()[1]);
  const auto problem = problem_here(data.args(), data.options(), data.shape().op);
  int refused = 0;
  for (const tessera::instance& row : tessera::attention_registry()) {
    if (takes(row, problem)) continue;
    const auto done = run(data.shape().op, data.args(), data.options(), {.row = row.name});
    ASSERT_EQ(done.code(), status_code::ineligible_row) << row.name << ": " << done.message();
    EXPECT_NE(done.message().find(row.name), std::string::npos) << done.message();
    ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(data.outputs_untouched());
}

TEST(throwing_form, throws_what_the_other_form_returns) {
  flash_data data(legal_calls()[0]);
  tessera::flash_attention_args args = data.args();
  args.k = {};
  try {
    tessera::flash_attention_or_throw(args, data.options());
    FAIL() << "nothing thrown";
  } catch (const tessera::error& thrown) {
    EXPECT_EQ(thrown.code(), status_code::invalid_argument);
    EXPECT_EQ(thrown.what(), tessera::flash_attention(args, data.options()).message());
  }
  EXPECT_TRUE(data.outputs_untouched());
}

}  // namespace
