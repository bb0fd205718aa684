// Random calls, legal and illegal: each is right or refused with a reason. Settings as in
// support/fuzz.hpp.
#include "tests/support/fuzz.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_mutations.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;
using tessera::status_code;

/// A legal call, through the library's own choice (null) or through a row.
void check_legal(flash_data& data, const tessera::instance* row, random_source& random,
                 fuzz_tally& counts) {
  const flash_case& one = data.shape();
  tessera::context context{.threads = random.chance(0.25) ? 2 : 1};
  bool eligible = true;
  if (row != nullptr) {
    context.row = row->name;
    // A call without rows has nothing to choose for: it succeeds whatever row is named.
    eligible = data.args().out.elements() == 0 ||
               takes(*row, problem_here(data.args(), data.options(), one.op));
  }
  const auto done = run(one.op, data.args(), data.options(), context);
  if (!eligible) {
    ++counts.ineligible;
    ASSERT_EQ(done.code(), status_code::ineligible_row) << context.row << ": " << done.message();
    ASSERT_FALSE(done.message().empty());
    ASSERT_TRUE(data.outputs_untouched());
    return;
  }
  ++counts.right;
  ASSERT_TRUE(done) << context.row << ": " << done.message();
  ASSERT_EQ(flash_expectation(data.args(), data.options()).complaints(), "") << context.row;
  ASSERT_TRUE(data.margins_intact()) << context.row << ": bytes outside the outputs were written";
}

/// The same call with one thing wrong; false if no mutation tried fits it.
bool check_illegal(flash_data& data, random_source& random, fuzz_tally& counts) {
  const std::span<const flash_mutation> mutations = all_mutations();
  flash_call call(data);
  const flash_mutation* wrong = nullptr;
  for (int attempt = 0; attempt < 20 && wrong == nullptr; ++attempt) {
    const flash_mutation& candidate = random.pick(mutations);
    if (candidate.apply(call)) wrong = &candidate;
  }
  if (wrong == nullptr || (!call.integers.empty() && !sees_values_here())) return false;
  ++counts.refused;
  const auto done = run(call.op, call.args, call.options);
  EXPECT_EQ(done.code(), status_code::invalid_argument) << wrong->name << ": " << done.message();
  EXPECT_FALSE(done.message().empty()) << wrong->name;
  EXPECT_TRUE(data.outputs_untouched()) << wrong->name;
  return true;
}

TEST(fuzz, every_call_is_right_or_refused_with_a_reason) {
  const std::vector<tessera::instance> tested = tested_rows();
  const std::span<const tessera::instance> rows(tested);
  run_fuzz([&](random_source& random, fuzz_tally& counts) {
    // Half of the calls name a row, most of these are made for it.
    const tessera::instance* row = random.chance(0.5) ? &random.pick(rows) : nullptr;
    case_limits limits;
    if (row != nullptr && !random.chance(0.15))
      limits = limits_of(row->config_as<tessera::attention_config>());
    if (random.chance(0.1)) limits.aligned = false;
    limits.work = 6e4;
    flash_data data(random_case(random, limits));
    const std::uint64_t inputs = data.input_digest();
    if (!random.chance(0.3) || !check_illegal(data, random, counts)) {
      check_legal(data, row, random, counts);
    }
    EXPECT_EQ(data.input_digest(), inputs) << "an input was changed";
  });
}

}  // namespace
