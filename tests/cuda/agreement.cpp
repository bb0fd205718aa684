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
    support::flash_case example;
    example.batch = 2;
    example.q_heads = 4;
    example.kv_heads = 2;
    example.q_len = 77;
    example.kv_len = 131;
    example.head_dim = example.v_head_dim = 64;
    example.op = flash_op::attention;
    example.weights = dtype::f32;
    example.wants_dropout_mask = true;
    example.options.dropout_probability = probability;
    example.options.dropout_seed = 0xFEEDFACE87654321u;
    example.poison = false;
    example.seed = 6;
    flash_data on_cpu(example);
    ASSERT_TRUE(attention(on_cpu.args(), on_cpu.options()));
    const auto weights = reference::to_doubles(on_cpu.args().weights);
    const auto mask = reference::to_doubles(on_cpu.args().dropout_mask);
    flash_data on_gpu(example);
    const auto rows = support::rows_for(on_gpu.args(), on_gpu.options(), example.op);
    ASSERT_FALSE(rows.empty());
    for (const instance& row : rows) {
      SCOPED_TRACE(row.name);
      on_gpu.reset_outputs();
      ASSERT_TRUE(support::run(example.op, on_gpu.args(), on_gpu.options(), {.row = row.name}));
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
