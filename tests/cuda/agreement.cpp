// The CPU and the GPU on the same calls: within the bound of each other, the same elements dropped.
#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/cuda/device_data.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::device_test {
namespace {

using support::flash_data;

/// One sentence for each output in which the two differ by more than either may from the truth.
std::string differences(const flash_attention_args& gpu, const flash_attention_args& cpu,
                        const support::flash_expectation& truth) {
  std::string text;
  const auto check = [&](std::string_view name, const tensor_view& ours,
                         const tensor_view& theirs) {
    if (!ours.present()) return;
    const support::comparison on_gpu = truth.judge(name, ours);
    const support::comparison on_cpu = truth.judge(name, theirs);
    for (const support::comparison& one : {on_gpu, on_cpu}) {
      if (!one.passed) text += support::sentence_of(one, name, ours.shape()) + "\n";
    }
  };
  check("out", gpu.out, cpu.out);
  check("lse", gpu.lse, cpu.lse);
  check("row_max", gpu.row_max, cpu.row_max);
  check("weights", gpu.weights, cpu.weights);
  return text;
}

/// Runs a generated call on both.
void expect_agreement(const support::flash_case& one) {
  flash_data on_gpu(one), on_cpu(one);
  const status there = support::run(one.op, on_gpu.args(), on_gpu.options());
  ASSERT_TRUE(there) << there.message();
  const status here = one.op == flash_op::attention
                          ? attention(on_cpu.args(), on_cpu.options())
                          : flash_attention(on_cpu.args(), on_cpu.options());
  ASSERT_TRUE(here) << here.message();
  const support::flash_expectation truth(on_cpu.args(), on_cpu.options());
  EXPECT_EQ(differences(on_gpu.args(), on_cpu.args(), truth), "");
  if (on_gpu.args().dropout_mask.present()) {
    EXPECT_EQ(reference::to_doubles(on_gpu.args().dropout_mask),
              reference::to_doubles(on_cpu.args().dropout_mask));
  }
}

TEST(cpu_and_gpu, agree_with_each_option) {
  for (const support::flash_trait trait : support::all_flash_traits) {
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
      SCOPED_TRACE(std::string(name_of(trait)) + " " + std::string(tessera::name_of(type)));
      for (std::uint64_t index = 0; index < 6; ++index) {
        support::random_source random =
            support::stream(31, 100 * index + static_cast<std::uint64_t>(trait));
        support::case_limits limits;
        limits.type = type;
        if (index % 2 == 0) limits.head_dim = random.pick({64, 128});
        expect_agreement(support::case_with(std::array{trait}, random, limits));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

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
