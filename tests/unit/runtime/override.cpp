// Rows asked for by name: they win, they are checked, they leave no trace.
#include <gtest/gtest.h>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view generic_row = "attention.cpu_generic.f32.dany.every.256x256";
constexpr std::string_view row_of_d128 = "attention.cpu_avx512.f32.d128.896x256";

TEST(Override, WinsUnderEveryPolicy) {
  for (const auto policy : {ineligible_override::error, ineligible_override::fall_through}) {
    question question(small_prompt);
    question.policy.on_ineligible = policy;
    question.row_of_call = generic_row;
    const auto chosen = question.answer();
    ASSERT_TRUE(chosen) << chosen.message();
    EXPECT_EQ(chosen->row(), generic_row);
    EXPECT_EQ(chosen->tier, selection_tier::override);
    EXPECT_EQ(chosen->reason, selection_reason::named_by_call);
    EXPECT_FALSE(chosen->remembered);
  }
}

TEST(Override, OfTheCallWinsOverTheEnvironment) {
  question question(small_prompt);
  question.row_of_environment = generic_row;
  EXPECT_EQ(question.answer()->reason, selection_reason::named_by_environment);
  EXPECT_EQ(question.row(), generic_row);
  question.row_of_call = small_prompt_avx512;
  EXPECT_EQ(question.row(), small_prompt_avx512);
  EXPECT_EQ(question.answer()->reason, selection_reason::named_by_call);
}

TEST(Override, LeavesNoTraceInTheMemory) {
  selection_memory memory;
  question question(small_prompt);
  question.memory = &memory;
  question.row_of_call = generic_row;
  ASSERT_TRUE(question.answer());
  question.row_of_call = {};
  const auto chosen = question.answer();
  EXPECT_EQ(chosen->row(), small_prompt_avx512);
  EXPECT_FALSE(chosen->remembered);
  EXPECT_TRUE(question.answer()->remembered);
  question.row_of_call = generic_row;
  EXPECT_EQ(question.row(), generic_row) << "an override is asked before the memory";
}

// What a machine has instead of AMX is part of the refusal.
TEST(Override, RowsOfTilesSayWhatIsMissing) {
  constexpr std::string_view row = "attention.cpu_amx_bf16.bf16.d128.decode.64x128";
  question question("flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128]",
                    backend::cpu_avx512_bf16);
  question.row_of_call = row;
  for (const tile_access tiles :
       {tile_access::absent, tile_access::not_saved, tile_access::refused}) {
    question.device.tiles = tiles;
    const auto chosen = question.answer();
    EXPECT_EQ(chosen.code(), status_code::ineligible_row);
    const std::string message(chosen.message());
    EXPECT_NE(message.find("the row needs cpu_amx_bf16, this device has cpu_avx512_bf16"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(reason_of(tiles)), std::string::npos) << message;
  }
  question.device.highest = backend::cpu_amx_bf16;
  question.device.tiles = tile_access::granted;
  EXPECT_EQ(question.row(), row);
}

TEST(Override, UnknownRowsAreRefused) {
  for (const auto policy : {ineligible_override::error, ineligible_override::fall_through}) {
    question question(small_prompt);
    question.policy.on_ineligible = policy;
    question.row_of_call = "attention.cpu_avx512.f32.d64.112x512";
    const auto chosen = question.answer();
    EXPECT_EQ(chosen.code(), status_code::unknown_row);
    EXPECT_EQ(chosen.message(),
              "context.row: 'attention.cpu_avx512.f32.d64.112x512' is not one of the " +
                  std::to_string(rows().size()) +
                  " attention rows of this build; the most similar is " +
                  std::string(small_prompt_avx512));
  }
}

TEST(Override, IneligibleRowsAreRefusedWithTheDifference) {
  question first_question(small_prompt);
  first_question.row_of_environment = row_of_d128;
  EXPECT_EQ(first_question.answer().code(), status_code::ineligible_row);
  EXPECT_EQ(first_question.answer().message(),
            "TESSERA_ROW: attention.cpu_avx512.f32.d128.896x256 cannot run this problem: "
            "head_dim is 64, the row has 128");
  question other(small_prompt, backend::cpu_avx2);
  other.row_of_call = small_prompt_avx512;
  EXPECT_EQ(other.answer().message(),
            "context.row: attention.cpu_avx512.f32.d64.896x256 cannot run this problem: "
            "the row needs cpu_avx512, this device has cpu_avx2");
}

TEST(Override, MayFallThroughWhereThePolicySaysSo) {
  question question(small_prompt);
  question.row_of_call = row_of_d128;
  question.policy.on_ineligible = ineligible_override::fall_through;
  EXPECT_EQ(question.row(), small_prompt_avx512);
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
}

TEST(Memory, KeepsTheTierAndForgetsOnDemand) {
  selection_memory memory;
  question question(small_prompt);
  question.memory = &memory;
  EXPECT_FALSE(question.answer()->remembered);
  const auto known = question.answer();
  EXPECT_TRUE(known->remembered);
  EXPECT_EQ(known->tier, selection_tier::heuristic);
  EXPECT_EQ(known->row(), small_prompt_avx512);
  forget_selections();
  EXPECT_FALSE(question.answer()->remembered);
  EXPECT_TRUE(question.answer()->remembered);
}

TEST(Memory, TellsApartEverythingAChoiceDependsOn) {
  constexpr std::string_view base = "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]";
  for (const char* other : {
           "flash_attention q=[1,65,8,64]f32 k=[1,64,8,64]",
           "flash_attention q=[1,64,8,64]f32 k=[1,63,8,64]",
           "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64]",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,4,64]",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] v=[1,64,8,32]",
           "flash_attention q=[1,64,8,64]bf16 k=[1,64,8,64]",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] causal=true",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] window_left=5",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] sinks=[1,1]f32",
           "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] logits_soft_cap=5",
       }) {
    selection_memory memory;
    question first_question(base);
    first_question.memory = &memory;
    ASSERT_TRUE(first_question.answer());
    question two(other);
    two.memory = &memory;
    EXPECT_FALSE(two.answer()->remembered) << other;
  }
  selection_memory memory;
  question question(base);
  question.memory = &memory;
  ASSERT_TRUE(question.answer());
  question.threads = 3;
  EXPECT_FALSE(question.answer()->remembered) << "threads decide too";
}

TEST(Memory, IsBoundedAndStaysRight) {
  selection_memory memory;
  for (int round = 0; round < 2; ++round) {
    for (int length = 1; length < 500; ++length) {
      question question("flash_attention q=[1," + std::to_string(length) +
                        ",8,64]f32 k=[1,512,8,64]");
      const std::string_view fresh = question.row();
      question.memory = &memory;
      EXPECT_EQ(question.row(), fresh) << length;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
