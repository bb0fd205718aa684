// Nothing on an axis, on several, and on none: every row says what memory it wants, is planned,
// explained and run, with fewer and with more threads than there is work.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/flash_plan.hpp>

#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using namespace tessera::support;

struct emptied {
  std::string name;
  flash_case call;
};

/// Each choice of empty axes, dense and packed. (Heads and head dims of 0 are refused.)
std::vector<emptied> empty_calls() {
  flash_case full;
  full.batch = 2;
  full.q_len = 3;
  full.kv_len = 70;
  full.q_heads = 4;
  full.kv_heads = 2;
  full.head_dim = full.v_head_dim = 64;
  full.options.causal = true;
  std::vector<emptied> calls;
  for (unsigned axes = 0; axes < 8; ++axes) {
    flash_case dense = full;
    std::string name;
    const auto empty = [&](unsigned bit, const char* axis, std::int64_t& size) {
      if ((axes >> bit & 1) == 0) return;
      size = 0;
      name += std::string(" no ") + axis;
    };
    empty(0, "entries", dense.batch);
    empty(1, "rows", dense.q_len);
    empty(2, "keys", dense.kv_len);
    calls.push_back({"dense" + name, dense});
    flash_case packed = dense;
    packed.packed = true;  // without entries: rows and keys of no sequence
    for (std::int64_t entry = 0; entry < packed.batch; ++entry) {
      packed.q_lengths.push_back(packed.q_len / 2);
      packed.k_lengths.push_back(packed.kv_len / 2);
    }
    calls.push_back({"packed" + name, packed});
  }
  return calls;
}

class empty_axes : public testing::TestWithParam<tessera::dtype> {
 protected:
  /// The row, or the one the library chooses, with these arguments.
  static void expect_served(const tessera::flash_attention_args& args,
                            const flash_expectation& expectation, flash_data& data,
                            const tessera::context& context) {
    const auto problem = tessera::problem_of(args, data.options());
    data.reset_outputs();
    const auto done = tessera::flash_attention(args, data.options(), context);
    EXPECT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(), "");
    const auto plan = tessera::plan(problem, context);
    ASSERT_TRUE(plan) << plan.message();
    data.reset_outputs();
    const auto planned = plan->run(args);
    EXPECT_TRUE(planned) << planned.message();
    EXPECT_EQ(expectation.complaints(), "");
    EXPECT_TRUE(data.margins_intact());
    const auto why = tessera::explain(problem, context);
    ASSERT_TRUE(why) << why.message();
    EXPECT_EQ(why->row, plan->choice().row());
  }
};

TEST_P(empty_axes, are_served_by_every_row) {
  for (emptied& empty : empty_calls()) {
    SCOPED_TRACE(empty.name);
    empty.call.type = GetParam();
    flash_data data(empty.call);
    float nothing = 0.0f;
    const flash_expectation expectation(data.args(), data.options());
    for (const bool sinks : {false, true}) {
      tessera::flash_attention_args args = data.args();
      if (sinks) args.sinks = tessera::view(&nothing, {empty.call.q_heads, 0});
      for (const int threads : {1, 2, 64}) {
        SCOPED_TRACE(threads);
        expect_served(args, expectation, data, {.threads = threads});
        for (const auto& row : rows_for(args, data.options())) {
          SCOPED_TRACE(row.name);
          expect_served(args, expectation, data, {.row = row.name, .threads = threads});
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(types, empty_axes,
                         testing::Values(tessera::dtype::f32, tessera::dtype::f16,
                                         tessera::dtype::bf16));

}  // namespace
