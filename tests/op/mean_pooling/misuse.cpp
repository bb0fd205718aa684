// Bad input: every refusal names the tensor or option, the fact and both numbers, and leaves every
// byte of the output as it was.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/declaration.hpp>

#include "tests/support/pooling_mutations.hpp"

namespace {

using namespace tessera::support;
using tessera::mean_pooling_op;

// Calls that have, between them, every tensor and option that a mutation may want.
std::vector<pooling_case> legal_calls() {
  pooling_case dense;
  dense.batch = 2;
  dense.tokens = 6;
  dense.columns = 5;
  dense.mask = mask_content::weights;
  pooling_case packed = dense;
  packed.mask = mask_content::none;
  packed.packed = true;
  packed.batch = 1;
  packed.lengths = {2, 0, 3};
  pooling_case chunks = packed;
  chunks.op = mean_pooling_op::mean_pooling_chunks;
  chunks.heads = 2;
  chunks.chunk_size = 2;
  pooling_case back = dense;
  back.op = mean_pooling_op::mean_pooling_backward;
  back.with_x = true;
  pooling_case chunks_back = chunks;
  chunks_back.op = mean_pooling_op::mean_pooling_chunks_backward;
  return {dense, packed, chunks, back, chunks_back};
}

class pooling_misuse : public testing::TestWithParam<pooling_mutation> {};

TEST_P(pooling_misuse, is_refused_with_a_reason_and_the_output_untouched) {
  int applied = 0;
  for (const pooling_case& legal : legal_calls()) {
    pooling_data data(legal);
    pooling_call call(data);
    if (!GetParam().apply(call)) continue;
    ++applied;
    SCOPED_TRACE(name_of(call.op));
    const std::uint64_t inputs = data.input_digest();
    const auto before = data.output().bytes();
    const tessera::status done = run(call.op, call.args, call.options);
    ASSERT_FALSE(done) << "accepted";
    EXPECT_EQ(done.code(), tessera::status_code::invalid_argument) << done.message();
    for (const std::string_view word : GetParam().words) {
      EXPECT_NE(done.message().find(word), std::string::npos)
          << "lacks '" << word << "': " << done.message();
    }
    EXPECT_TRUE(data.output().bytes() == before) << "the output was written";
    EXPECT_EQ(data.input_digest(), inputs) << "an input was changed";
  }
  EXPECT_GT(applied, 0) << "the mutation fits no call";
}

INSTANTIATE_TEST_SUITE_P(all, pooling_misuse, testing::ValuesIn(pooling_mutations()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(pooling_misuse_of_devices, one_that_is_not_there_is_refused_by_name) {
  for (const pooling_case& legal : legal_calls()) {
    pooling_data data(legal);
    SCOPED_TRACE(name_of(data.op()));
    tessera::mean_pooling_args there = data.args();
    for (std::size_t tensor = 0; tensor < tessera::mean_pooling_table::tensors.size(); ++tensor) {
      tessera::tensors_of(there)[tensor].device = {tessera::device_kind::cuda, 63};
    }
    const auto done = run(data.op(), there, data.options());
    EXPECT_EQ(done.code(), tessera::status_code::device) << done.message();
    EXPECT_NE(done.message().find("cuda:63"), std::string::npos) << done.message();
    EXPECT_TRUE(data.output().untouched());
  }
}

TEST(pooling_misuse_of_rows, is_refused_by_name) {
  pooling_data data(legal_calls().front());
  const auto unknown = run(data.op(), data.args(), data.options(), {.row = "mean_pooling.none"});
  EXPECT_EQ(unknown.code(), tessera::status_code::unknown_row) << unknown.message();
  const auto wrong = run(data.op(), data.args(), data.options(),
                         {.row = "mean_pooling.cpu_generic.f32.backward.cached"});
  EXPECT_EQ(wrong.code(), tessera::status_code::ineligible_row) << wrong.message();
  EXPECT_NE(wrong.message().find("pass is forward, the row has backward"), std::string::npos)
      << wrong.message();
  EXPECT_TRUE(data.output().untouched());
}

}  // namespace
