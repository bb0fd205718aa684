// Random calls, legal and illegal: each is right or refused with a reason. Settings as in
// support/fuzz.hpp.
#include "tests/support/fuzz.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/pooling_mutations.hpp"

namespace {

using namespace tessera::support;
using tessera::status_code;

void check_legal(pooling_data& data, random_source& random, fuzz_tally& counts) {
  tessera::context context{.threads = random.chance(0.25) ? 2 : 1};
  bool eligible = true;
  if (random.chance(0.5)) {
    const auto& row = random.pick(tessera::mean_pooling_registry());
    context.row = row.name;
    const bool idle = data.output().view().elements() == 0;
    const auto& config = row.config_as<tessera::mean_pooling_config>();
    eligible = idle || (tessera::this_device().runs(row.target) &&
                        config.type == data.shape().type && config.pass == pass_of(data.op()));
  }
  const auto done = run(data.op(), data.args(), data.options(), context);
  if (!eligible) {
    ++counts.ineligible;
    ASSERT_EQ(done.code(), status_code::ineligible_row) << context.row << ": " << done.message();
    ASSERT_TRUE(data.output().untouched());
    return;
  }
  ++counts.right;
  ASSERT_TRUE(done) << context.row << ": " << done.message();
  ASSERT_EQ(
      pooling_expectation(data.op(), data.args(), data.options()).complaint(data.output().view()),
      "")
      << context.row;
  ASSERT_TRUE(data.output().margins_intact()) << "bytes outside the output were written";
}

/// The same call with one thing wrong; false if no mutation tried fits it.
bool check_illegal(pooling_data& data, random_source& random, fuzz_tally& counts) {
  pooling_call call(data);
  for (int attempt = 0; attempt < 20; ++attempt) {
    const pooling_mutation& wrong = random.pick(std::span(pooling_mutations()));
    if (!wrong.apply(call)) continue;
    ++counts.refused;
    const auto done = run(call.op, call.args, call.options);
    EXPECT_EQ(done.code(), status_code::invalid_argument) << wrong.name << ": " << done.message();
    EXPECT_FALSE(done.message().empty()) << wrong.name;
    EXPECT_TRUE(data.output().untouched()) << wrong.name;
    return true;
  }
  return false;
}

TEST(fuzz, every_pooling_call_is_right_or_refused_with_a_reason) {
  run_fuzz([](random_source& random, fuzz_tally& counts) {
    pooling_data data(random_pooling_case(random, {.elements = 6e3}));
    const std::uint64_t inputs = data.input_digest();
    if (!random.chance(0.3) || !check_illegal(data, random, counts)) {
      check_legal(data, random, counts);
    }
    EXPECT_EQ(data.input_digest(), inputs) << "an input was changed";
  });
}

}  // namespace
