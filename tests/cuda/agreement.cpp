// The CPU and the GPU on the same call: the same elements dropped.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/cuda/device_data.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::device_test {
namespace {

using support::flash_data;

// A dropped element has weight 0 on both, whatever row runs: their patterns are the same.
TEST(cpu_and_gpu, drop_the_same_elements) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(probability);
    support::flash_case one;
    one.batch = 2;
    one.q_heads = 4;
    one.kv_heads = 2;
    one.q_len = 77;
    one.kv_len = 131;
    one.head_dim = one.v_head_dim = 64;
    one.op = flash_op::attention;
    one.weights = dtype::f32;
    one.wants_dropout_mask = true;
    one.options.dropout_probability = probability;
    one.options.dropout_seed = 0xFEEDFACE87654321u;
    one.poison = false;
    one.seed = 6;
    flash_data on_cpu(one);
    ASSERT_TRUE(attention(on_cpu.args(), on_cpu.options()));
    const auto weights = reference::to_doubles(on_cpu.args().weights);
    const auto mask = reference::to_doubles(on_cpu.args().dropout_mask);
    flash_data on_gpu(one);
    const auto rows = support::rows_for(on_gpu.args(), on_gpu.options(), one.op);
    ASSERT_FALSE(rows.empty());
    for (const instance& row : rows) {
      SCOPED_TRACE(row.name);
      on_gpu.reset_outputs();
      ASSERT_TRUE(support::run(one.op, on_gpu.args(), on_gpu.options(), {.row = row.name}));
      ASSERT_EQ(reference::to_doubles(on_gpu.args().dropout_mask), mask);
      const auto there = reference::to_doubles(on_gpu.args().weights);
      for (std::size_t n = 0; n < mask.size(); ++n) {
        ASSERT_EQ(there[n] == 0.0, weights[n] == 0.0) << n;
        ASSERT_EQ(there[n] == 0.0, mask[n] == 0.0) << n;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::device_test
