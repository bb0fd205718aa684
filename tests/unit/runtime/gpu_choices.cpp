// Which rows of the default table problems get on GPUs that are not there.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "default_table.hpp"
#include "pretended.hpp"
#include "tests/support/gpu_facts.hpp"

namespace tessera::testing {
namespace {

struct gpu_question {
  explicit gpu_question(std::string_view text, device_facts facts = support::h200())
      : problem(*parse_problem<flash_problem>(text)), device(facts) {}
  gpu_question(const gpu_question&) = delete;  // `view` is of its own problem
  gpu_question& operator=(const gpu_question&) = delete;

  inquiry asked() const {
    return {.kind = attention_record,
            .problem = view,
            .demand = demand_for(attention_record, view, policy),
            .instances = default_table(),
            .device = device,
            .threads = device.multiprocessors,
            .policy = policy,
            .memory = memory};
  }
  std::string row() const {
    const auto chosen = select(asked());
    return chosen ? std::string(chosen->row()) : "none: " + chosen.message();
  }
  std::string reason() const { return explain(asked()).reason_text; }

  flash_problem problem;
  problem_view view = view_of(problem);
  device_facts device;
  selection_policy policy{};
  selection_memory* memory = nullptr;
};

std::string row_for(std::string_view text, const device_facts& facts = support::h200()) {
  return gpu_question(text, facts).row();
}

::testing::AssertionResult has(const std::string& name, std::string_view part) {
  if (name.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << name << " has no " << part;
}

TEST(GpuChoices, PromptsGetTheTileOfTheirHeadDim) {
  for (const int d : {64, 96, 128, 256}) {
    const std::string dim = std::to_string(d);
    for (const char* type : {"bf16", "f16"}) {
      for (const char* length : {"512", "2048", "16384"}) {
        const std::string shape = std::string("[1,") + length + ",32," + dim + "]" + type;
        const std::string text = "flash_attention q=" + shape + " k=" + shape + " causal=true";
        const std::string part = std::string(".") + type + ".d" + dim + ".";
        EXPECT_TRUE(has(row_for(text), ".cuda_sm90" + part)) << text;
        EXPECT_TRUE(has(row_for(text, support::a100()), ".cuda_sm80" + part)) << text;
      }
    }
  }
}

// As measured on an H200 (bench/results).
TEST(GpuChoices, NarrowHeadsGetFourWarpgroupsForShortPrompts) {
  EXPECT_TRUE(has(row_for("flash_attention q=[32,512,32,64]bf16 k=[32,512,32,64]"), ".256x64."));
  EXPECT_TRUE(has(row_for("flash_attention q=[8,2048,32,64]bf16 k=[8,2048,32,64]"), ".192x128."));
  const char* causal = "flash_attention q=[8,2048,32,64]bf16 k=[8,2048,32,64] causal=true";
  EXPECT_TRUE(has(row_for(causal), ".256x64."));
}

TEST(GpuChoices, HeadsOf128GetFewKeysATimeForShortPrompts) {
  const auto row = [](int length, const char* mask) {
    const std::string shape =
        "[" + std::to_string(16384 / length) + "," + std::to_string(length) + ",16,128]bf16";
    return row_for("flash_attention q=" + shape + " k=" + shape + mask);
  };
  for (const char* mask : {"", " causal=true"}) {
    for (const int length : {512, 1024, 2048, 4096}) {
      EXPECT_TRUE(has(row(length, mask), ".192x64.")) << length << mask;
    }
    EXPECT_TRUE(has(row(16384, mask), ".192x80.")) << mask;
  }
}

TEST(GpuChoices, NarrowHeadsGetFourWarpgroupsBehindWindows) {
  const std::string causal = "flash_attention q=[2,8192,32,64]bf16 k=[2,8192,32,64] causal=true";
  EXPECT_TRUE(has(row_for(causal), ".192x128."));
  for (const char* window : {" window_left=127", " window_left=1023", " window_left=2047"}) {
    EXPECT_TRUE(has(row_for(causal + window), ".256x64.")) << window;
  }
}

TEST(GpuChoices, HopperPromptsGetRowsOfHeadDimsThatEndInsideALine) {
  for (const int d : {40, 72, 80, 112}) {
    for (const char* type : {"bf16", "f16"}) {
      const std::string shape = "[2,2048,16," + std::to_string(d) + "]" + type + " ";
      const std::string text = "flash_attention q=" + shape + "k=" + shape;
      EXPECT_TRUE(
          has(row_for(text), ".cuda_sm90." + std::string(type) + ".d" + std::to_string(d) + "."))
          << text;
    }
  }
}

TEST(GpuChoices, FewQueriesGetDecodeRows) {
  for (const char* text :
       {"flash_attention q=[32,1,64,128]bf16 k=[32,8192,8,128] causal=true",
        "flash_attention q=[1,1,64,128]bf16 k=[1,32768,8,128]",
        "flash_attention q=[8,1,64,128]f16 k=[8,2048,8,128]",
        "flash_attention q=[128,1,32,64]bf16 k=[128,2048,8,64]",
        "flash_attention q=[32,1,8,256]bf16 k=[32,4096,4,256] causal=true window_left=4095",
        "flash_attention q=[16,2,32,128]bf16 k=[16,4096,8,128] causal=true"}) {
    EXPECT_TRUE(has(row_for(text), ".decode.")) << text;
    EXPECT_FALSE(has(row_for(text), ".dany.")) << text;
  }
  EXPECT_FALSE(
      has(row_for("flash_attention q=[4,64,32,128]bf16 k=[4,4096,8,128] causal=true"), ".decode."))
      << "256 rows for each key head are no decode";
}

TEST(GpuChoices, FeaturesGetTheSmallestRowThatHasThem) {
  EXPECT_TRUE(has(row_for("flash_attention q=[1,2048,8,256]bf16 k=[1,2048,4,256] causal=true "
                          "logits_soft_cap=50"),
                  ".d256.soft_cap."));
  EXPECT_TRUE(has(row_for("flash_attention q=[1,512,8,96]bf16 k=[1,512,8,96] "
                          "bias_post=[1,8,512,512]f32"),
                  ".dany.every."));
  EXPECT_TRUE(has(row_for("flash_attention q=[1,512,8,104]bf16 k=[1,512,8,104]"), ".dany."));
  EXPECT_TRUE(has(row_for("flash_attention q=[64,1,32,128]bf16 k=[64,4096,8,128] "
                          "bias_post=[64,1,1,4096]f32"),
                  ".dany.decode."));
}

TEST(GpuChoices, FeaturesOfCommonHeadDimsGetRowsOfTheirOwn) {
  const auto row = [](const char* type, int head_dim, const char* options) {
    const std::string shape =
        std::string("[4,2048,16,") + std::to_string(head_dim) + "]" + type + " ";
    return row_for("flash_attention q=" + shape + "k=" + shape + options, support::a100());
  };
  constexpr const char* cap = "causal=true logits_soft_cap=50";
  constexpr const char* segments = "q_segment_ids=[4,2048]i32 kv_segment_ids=[4,2048]i32";
  constexpr const char* bias = "bias_pre=[1,16,2048,2048]bf16";
  constexpr const char* mask = "mask=[4,1,2048,2048]u8";
  constexpr const char* dropout = "causal=true dropout_probability=0.1";
  for (const char* type : {"bf16", "f16"}) {
    for (const int d : {64, 128}) {
      const std::string dim = ".d" + std::to_string(d) + ".";
      EXPECT_TRUE(has(row(type, d, "causal=true"), dim + "128x64.")) << "no feature asked for";
      EXPECT_TRUE(has(row(type, d, cap), dim + "soft_cap+segments."));
      EXPECT_TRUE(has(row(type, d, segments), dim + "soft_cap+segments."));
      EXPECT_TRUE(has(row(type, d, dropout), dim + "every."));
    }
    for (const char* options : {bias, mask}) {
      EXPECT_TRUE(has(row(type, 64, options), ".d64.every."));
      EXPECT_TRUE(has(row(type, 128, options), ".d128.bias+mask."));
    }
    EXPECT_TRUE(has(row(type, 256, "causal=true"), ".d256.64x32."));
    EXPECT_TRUE(has(row(type, 256, cap), ".d256.soft_cap."));
    for (const char* options : {segments, bias, mask, dropout}) {
      EXPECT_TRUE(has(row(type, 256, options), ".d256.every.")) << options;
    }
  }
}

TEST(GpuChoices, HopperGetsRowsOfItsOwnWhereTheyHaveTheFeatures) {
  const auto row = [](const char* options) {
    constexpr std::string_view shape = "[4,2048,16,256]bf16 ";
    return row_for("flash_attention q=" + std::string(shape) + "k=" + std::string(shape) + options);
  };
  EXPECT_TRUE(has(row("causal=true"), ".cuda_sm90.bf16.d256.128x64."));
  EXPECT_TRUE(has(row("seqlens_k=[4]i32 sinks=[16,1]f32"), ".cuda_sm90.bf16.d256.128x64."));
  EXPECT_TRUE(has(row("causal=true window_left=500 normalize=false"), ".cuda_sm90."));
  EXPECT_TRUE(has(row("causal=true logits_soft_cap=50"), ".cuda_sm90.bf16.d256.soft_cap."));
  EXPECT_TRUE(has(row("mask=[4,1,2048,2048]u8"), ".cuda_sm80.bf16.d256.every."));
  EXPECT_TRUE(has(row("unaligned=true"), ".cuda_sm80.bf16.dany."));
}

TEST(GpuChoices, UnalignedTensorsGetRowsThatTakeThem) {
  gpu_question question("flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] unaligned=true");
  EXPECT_TRUE(has(question.row(), ".dany.every."));
  const explanation all = explain(question.asked());
  EXPECT_TRUE(all.better_row.empty()) << all.better_row;
  EXPECT_TRUE(has(all.identity, "aligned16=false"));
  const auto tuned = std::find_if(all.rejected.begin(), all.rejected.end(), [](const auto& row) {
    return row.row == "attention.cuda_sm80.bf16.d128.128x64.w4b2";
  });
  ASSERT_NE(tuned, all.rejected.end());
  EXPECT_TRUE(has(tuned->reason, "multiple of 16 bytes"));
}

TEST(GpuChoices, CpuRowsStayOnTheCpu) {
  gpu_question first_question("flash_attention q=[1,64,8,128]bf16 k=[1,64,8,128]");
  const explanation all = explain(first_question.asked());
  for (const row_estimate& row : all.eligible) EXPECT_TRUE(has(std::string(row.row), ".cuda_sm"));
  for (const row_rejection& row : all.rejected) {
    if (row.row.find(".cpu_avx2.") == std::string::npos) continue;
    EXPECT_EQ(row.reason, "the row is for the CPU, the device is cuda:0");
  }
  question here("flash_attention q=[1,64,8,128]bf16 k=[1,64,8,128]");
  auto asked = here.asked();
  asked.instances = default_table();
  for (const row_rejection& row : explain(asked).rejected) {
    if (row.row.find(".cuda_sm80.") == std::string::npos) continue;
    EXPECT_EQ(row.reason, "the row is for GPUs, the device is cpu:0");
  }
}

TEST(GpuChoices, RowsThatNeedMoreSharedMemoryAreRejected) {
  constexpr std::string_view text =
      "flash_attention q=[1,4096,8,192]bf16 k=[1,4096,8,192] v=[1,4096,8,128]";
  EXPECT_TRUE(has(row_for(text), ".d192v128."));
  EXPECT_TRUE(has(row_for(text, support::a100()), ".d192v128."));
  gpu_question small(text, support::a10());
  EXPECT_TRUE(has(small.row(), ".dany."));
  const explanation all = explain(small.asked());
  const auto large = std::find_if(all.rejected.begin(), all.rejected.end(), [](const auto& row) {
    return row.row.find(".bf16.d192v128.") != std::string::npos;
  });
  ASSERT_NE(large, all.rejected.end());
  EXPECT_EQ(large->reason,
            "the row needs 131072 bytes of shared memory for a block, this device has 101376");
}

TEST(GpuChoices, OldGpusHaveNoRows) {
  const std::string row =
      row_for("flash_attention q=[1,64,8,128]bf16 k=[1,64,8,128]", support::t4());
  EXPECT_TRUE(has(row, "the row needs cuda_sm80, this device has compute capability 7.5"));
}

TEST(GpuChoices, NearTiesGoToTheRowOfTheHeadDim) {
  for (const char* text : {"flash_attention q=[1,32,2,64]bf16 k=[1,32,1,64] causal=true",
                           "flash_attention q=[1,128,32,128]bf16 k=[1,128,32,128] causal=true"}) {
    EXPECT_FALSE(has(row_for(text), ".dany.")) << text;
  }
}

TEST(GpuChoices, RowsRepeatTheirBits) {
  gpu_question question("flash_attention q=[1,2048,8,128]bf16 k=[1,2048,8,128]");
  question.policy.promise = bits_promise::deterministic;
  EXPECT_TRUE(has(question.row(), ".d128."));
}

// How many parts the keys are cut into depends on the batch.
TEST(GpuChoices, PromisesThatNoRowKeepsAreRefused) {
  for (const char* text : {"flash_attention q=[1,2048,8,128]bf16 k=[1,2048,8,128]",
                           "flash_attention q=[1,1,8,128]bf16 k=[1,2048,8,128]"}) {
    gpu_question question(text, support::a100());
    question.policy.promise = bits_promise::batch_invariant;
    EXPECT_TRUE(has(question.row(), "none: ")) << text;
    EXPECT_TRUE(
        has(question.row(), "asks for batch invariant results, which the row does not promise"))
        << text;
  }
}

// Rows of Hopper cut the keys of the last tiles alone, and not where a promise is asked for: then a
// row's sums depend on its own sequence.
TEST(GpuChoices, HopperPromptsDoNotDependOnTheBatch) {
  gpu_question question("flash_attention q=[1,2048,8,128]bf16 k=[1,2048,8,128]");
  question.policy.promise = bits_promise::batch_invariant;
  EXPECT_TRUE(has(question.row(), ".cuda_sm90.bf16.d128."));
}

TEST(GpuChoices, HopperRowsOfCommonHeadDimsModifyScores) {
  for (const char* type : {"bf16", "f16"}) {
    for (const int d : {64, 128}) {
      const std::string shape = std::string("[4,2048,16,") + std::to_string(d) + "]" + type + " ";
      const std::string start = "flash_attention q=" + shape + "k=" + shape;
      const std::string row = std::string(".cuda_sm90.") + type + ".d" + std::to_string(d) + ".";
      EXPECT_TRUE(has(row_for(start), row + (d == 64 ? "256x64." : "192x")))
          << "no feature asked for";
      constexpr const char* cap = "causal=true logits_soft_cap=50 ";
      constexpr const char* segments = "q_segment_ids=[4,2048]i32 kv_segment_ids=[4,2048]i32";
      const std::string capped =
          type == std::string("bf16") ? "soft_cap.192x" : "soft_cap+segments.";
      EXPECT_TRUE(has(row_for(start + cap), row + capped));
      EXPECT_TRUE(has(row_for(start + segments), row + "soft_cap+segments."));
      EXPECT_TRUE(has(row_for(start + cap + segments), row + "soft_cap+segments."));
      constexpr const char* dropout = "causal=true dropout_probability=0.1 ";
      const std::string every = row + "soft_cap+bias+mask+segments+dropout.";
      for (const char* options : {"bias_pre=[1,16,2048,2048]bf16", "mask=[4,1,2048,2048]u8"}) {
        EXPECT_TRUE(has(row_for(start + options), every)) << options;
        EXPECT_TRUE(has(row_for(start + dropout + options), every)) << options;
      }
      const bool alone = type == std::string("bf16");
      EXPECT_TRUE(has(row_for(start + dropout), alone ? row + "dropout.192x64" : every));
    }
  }
}

TEST(GpuChoices, ReasonsCountBlocks) {
  constexpr const char* text = "flash_attention q=[2,4096,16,128]bf16 k=[2,4096,16,128]";
  EXPECT_TRUE(has(gpu_question(text, support::a100()).reason(),
                  "prefill, 1024 blocks of 128 rows, for 108 multiprocessors with 2 at a time"));
  EXPECT_TRUE(has(gpu_question(text).reason(),
                  "prefill, 704 blocks of 192 rows, for 132 multiprocessors with 1 at a time"));
  const std::string decode =
      gpu_question("flash_attention q=[1,1,64,128]bf16 k=[1,32768,8,128]").reason();
  EXPECT_TRUE(has(decode, "decode, 8 blocks of 16 rows, keys in 48 parts, for 132"));
}

TEST(GpuChoices, AreRememberedForEachDevice) {
  selection_memory memory;
  gpu_question question("flash_attention q=[1,4096,8,192]bf16 k=[1,4096,8,192] v=[1,4096,8,128]");
  question.memory = &memory;
  EXPECT_TRUE(has(question.row(), ".d192v128."));
  EXPECT_TRUE(select(question.asked())->remembered);
  gpu_question other("flash_attention q=[1,4096,8,192]bf16 k=[1,4096,8,192] v=[1,4096,8,128]",
                     support::a10());
  other.device.ordinal = 1;
  other.memory = &memory;
  EXPECT_FALSE(select(other.asked())->remembered);
  EXPECT_TRUE(has(other.row(), ".dany."));
  EXPECT_TRUE(select(question.asked())->remembered)
      << "choices of two devices do not push each other out";
  EXPECT_TRUE(has(question.row(), ".d192v128."));
}

/// Predictions beside what an H200 was measured to take (bench/results): within a factor of 1.6.
TEST(GpuChoices, PredictionsAreNearMeasurements) {
  const struct {
    std::string_view text;
    double seconds;
  } measured[] = {
      {"flash_attention q=[2,8192,16,128]bf16 k=[2,8192,16,128]",
       4.0 * 2 * 16 * 8192. * 8192 * 128 / 781e12},
      {"flash_attention q=[2,8192,16,128]bf16 k=[2,8192,16,128] causal=true",
       2.0 * 2 * 16 * 8192. * 8192 * 128 / 770e12},
      {"flash_attention q=[32,512,32,64]bf16 k=[32,512,32,64]",
       4.0 * 32 * 32 * 512. * 512 * 64 / 388e12},
      {"flash_attention q=[2,8192,8,256]bf16 k=[2,8192,8,256]",
       4.0 * 2 * 8 * 8192. * 8192 * 256 / 802e12},
      {"flash_attention q=[32,1,64,128]bf16 k=[32,8192,8,128]",
       2.0 * 32 * 8 * 8192. * 256 / 4255e9},
      {"flash_attention q=[1,1,64,128]bf16 k=[1,32768,8,128]", 2.0 * 8 * 32768. * 256 / 2456e9},
      {"flash_attention q=[32,1,64,64]bf16 k=[32,8192,8,64]", 2.0 * 32 * 8 * 8192. * 128 / 4106e9},
  };
  for (const auto& [text, seconds] : measured) {
    const auto chosen = select(gpu_question(text).asked());
    ASSERT_TRUE(chosen) << chosen.message();
    EXPECT_LT(chosen->predicted_seconds, 1.6 * seconds) << text << " " << chosen->row();
    EXPECT_GT(chosen->predicted_seconds, seconds / 1.6) << text << " " << chosen->row();
  }
}

}  // namespace
}  // namespace tessera::testing
