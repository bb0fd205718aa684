// ejKernel's configuration classes as row patterns.
#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <tessera/interop/config_classes.hpp>
#include <tessera/runtime/family.hpp>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

TEST(ConfigClasses, BecomePatternsThatChooseRows) {
  const auto pattern = [](std::string_view fields) {
    return *row_pattern_of("FlashAttention", fields);
  };
  EXPECT_EQ(pattern(""), "attention.*.*.*x*");
  EXPECT_EQ(pattern("q_blocksize=384 num_warps=4 num_stages=2"), "attention.*.*.384x*");
  EXPECT_EQ(pattern("fwd_params.q_blocksize=384 fwd_params.kv_blocksize=256 backend=cpu"),
            "attention.cpu_*.*.384x256");
  EXPECT_EQ(pattern("q_blocksize=None  backend=any"), "attention.*.*.*x*");
  EXPECT_EQ(*row_pattern_of("Attention", "block_q=896"), "attention.*.*.896x*");
  EXPECT_EQ(*row_pattern_of("QuantizedMatmul", "block_m=128 split_k=2 backend=cpu"),
            "quantized.cpu_*.forward*");
  EXPECT_EQ(*row_pattern_of("GroupedMatmul", "block_m=128 block_k=64 bypass_xla_tiling=True"),
            "grouped_matmul.*.128x*x64");
  EXPECT_EQ(*row_pattern_of("DeepSeekAttn", "backend=cpu"), "latent_attention.cpu_*.selected.*");
  question question("flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]");
  const std::string narrow = pattern("q_blocksize=384");
  question.row_of_call = narrow;
  EXPECT_EQ(question.row(), "attention.cpu_avx2.f32.d64.384x256");
}

TEST(ConfigClasses, OfRecurrencesChooseRowsOfTheirFamily) {
  const auto pattern = [](std::string_view name) { return *row_pattern_of(name, "backend=cpu"); };
  for (const char* name : {"KDA", "GDR", "RaggedGDR", "RWKV7", "RWKV7Mul"}) {
    EXPECT_EQ(pattern(name), "delta_rule.cpu_*.*") << name;
  }
  for (const char* name : {"RWKV4", "StateSpacev1", "StateSpacev2"}) {
    EXPECT_EQ(pattern(name), "selective_scan.cpu_*.*") << name;
  }
  const auto& rows = operation_named("kda").kind->rows();
  EXPECT_TRUE(std::ranges::any_of(
      rows, [&](const instance& row) { return matches_pattern(pattern("KDA"), row.name); }));
}

TEST(ConfigClasses, AreRefusedWithTheFact) {
  EXPECT_EQ(row_pattern_of("SoftmaxConfig", "").message(),
            "configuration SoftmaxConfig: there is no such class");
  EXPECT_EQ(row_pattern_of("RingAttention", "").message(),
            "configuration RingAttention: its kernels are not in this version");
  EXPECT_EQ(row_pattern_of("FlashAttention", "colour=3").message(),
            "configuration FlashAttention: has no field 'colour'");
  EXPECT_EQ(row_pattern_of("FlashAttention", "q_blocksize").message(),
            "configuration FlashAttention: 'q_blocksize' has no '=', fields are name=value");
  EXPECT_EQ(row_pattern_of("FlashAttention", "q_blocksize=-1").message(),
            "configuration FlashAttention: q_blocksize=-1 must be a positive number or None");
  EXPECT_EQ(row_pattern_of("FlashAttention", "backend=tpu").message(),
            "configuration FlashAttention: backend=tpu must be any, cpu or gpu");
}

TEST(ConfigClasses, AreListedOnceAndEachPatternNamesAFamily) {
  std::set<std::string_view> names;
  for (const config_class& configs : config_classes) {
    EXPECT_TRUE(names.insert(configs.name).second) << configs.name;
    if (configs.pattern.empty()) continue;
    bool known = false;
    for (const family* kind : families()) known = known || configs.pattern.starts_with(kind->name);
    EXPECT_TRUE(known) << configs.name;
  }
}

}  // namespace
}  // namespace tessera::testing
