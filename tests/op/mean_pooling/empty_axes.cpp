// Nothing on an axis, on several, and on none: every row is planned, explained and run, with fewer
// and with more threads than there is work.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/registry.hpp>

#include "tests/support/pooling_data.hpp"

namespace {

using namespace tessera::support;
using tessera::mean_pooling_op;

struct emptied {
  std::string name;
  pooling_case call;
};

/// Each choice of empty axes of an operation, dense and packed.
std::vector<emptied> empty_calls(mean_pooling_op op) {
  const bool chunks = has_chunks(op);
  std::vector<emptied> calls;
  for (unsigned axes = 0; axes < 16; ++axes) {
    pooling_case dense;
    dense.op = op;
    dense.batch = 2;
    dense.tokens = 5;
    dense.heads = chunks ? 2 : 1;
    dense.columns = 3;
    if (chunks) dense.chunk_size = 4;
    std::string name;
    const auto empty = [&](unsigned bit, const char* axis, std::int64_t& size) {
      if ((axes >> bit & 1) == 0) return;
      size = 0;
      name += std::string(" no ") + axis;
    };
    empty(0, "entries", dense.batch);
    empty(1, "tokens", dense.tokens);
    empty(2, "columns", dense.columns);
    if (chunks) empty(3, "heads", dense.heads);
    calls.push_back({"dense" + name, dense});
    pooling_case packed = dense;
    packed.packed = true;  // without entries: tokens of no sequence
    packed.lengths.assign(static_cast<std::size_t>(dense.batch), dense.tokens / 2);
    packed.batch = 1;
    calls.push_back({"packed" + name, packed});
  }
  return calls;
}

void expect_served(pooling_data& data, const pooling_expectation& expectation,
                   const tessera::context& context) {
  const auto problem = tessera::problem_of(data.args(), data.options(), data.op());
  data.output().reset();
  const auto done = run(data.op(), data.args(), data.options(), context);
  EXPECT_TRUE(done) << done.message();
  EXPECT_EQ(expectation.complaint(data.output().view()), "");
  const auto plan = tessera::plan(problem, context);
  ASSERT_TRUE(plan) << plan.message();
  data.output().reset();
  const auto planned = plan->run(data.args());
  EXPECT_TRUE(planned) << planned.message();
  EXPECT_EQ(expectation.complaint(data.output().view()), "");
  EXPECT_TRUE(data.output().margins_intact());
  const auto why = tessera::explain(problem, context);
  ASSERT_TRUE(why) << why.message();
  EXPECT_EQ(why->row, plan->choice().row());
}

class pooling_empty_axes : public testing::TestWithParam<mean_pooling_op> {};

TEST_P(pooling_empty_axes, are_served_by_every_row) {
  for (emptied& empty : empty_calls(GetParam())) {
    SCOPED_TRACE(empty.name);
    for (const auto type : {tessera::dtype::f32, tessera::dtype::f16, tessera::dtype::bf16}) {
      empty.call.type = type;
      pooling_data data(empty.call);
      const pooling_expectation expectation(data.op(), data.args(), data.options());
      for (const int threads : {1, 2, 64}) {
        SCOPED_TRACE(threads);
        expect_served(data, expectation, {.threads = threads});
        for (const auto& row : tessera::mean_pooling_registry()) {
          const auto pass = is_backward(empty.call.op) ? tessera::pooling_pass::backward
                                                       : tessera::pooling_pass::forward;
          const auto& config = row.config_as<tessera::mean_pooling_config>();
          if (config.type != type || config.pass != pass ||
              !tessera::this_device().runs(row.target)) {
            continue;
          }
          SCOPED_TRACE(row.name);
          expect_served(data, expectation, {.row = row.name, .threads = threads});
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(operations, pooling_empty_axes,
                         testing::Values(mean_pooling_op::mean_pooling,
                                         mean_pooling_op::mean_pooling_chunks,
                                         mean_pooling_op::mean_pooling_backward,
                                         mean_pooling_op::mean_pooling_chunks_backward));

}  // namespace
