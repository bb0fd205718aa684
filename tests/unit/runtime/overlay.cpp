// Overlays: rules, their text, and where they hold.
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view portable = "attention.cpu_generic.f32.dany.every.256x256";

overlay rules(std::string_view lines) {
  result<overlay> parsed = parse_overlay(lines);
  EXPECT_TRUE(parsed) << parsed.message();
  return parsed ? *parsed : overlay({});
}

/// The row with the scopes of this thread in force.
std::string row_here(question first_question = question(small_prompt)) {
  first_question.overlays.of_thread = overlay_scope::innermost();
  const auto chosen = first_question.answer();
  return chosen ? std::string(chosen->row()) : chosen.message();
}

TEST(Overlay, NamesARowForTheProblemsItMatches) {
  const overlay all =
      rules("flash_attention: type=f32 q_len=1..100 => " + std::string(small_prompt_avx2));
  question first_question(small_prompt);
  first_question.overlays.of_call = &all;
  const auto chosen = first_question.answer();
  ASSERT_TRUE(chosen) << chosen.message();
  EXPECT_EQ(chosen->row(), small_prompt_avx2);
  EXPECT_EQ(chosen->tier, selection_tier::overlay);
  EXPECT_EQ(chosen->reason, selection_reason::overlay_rule);
  question longer("flash_attention q=[1,1001,8,64]f32 k=[1,1001,8,64]");
  longer.overlays.of_call = &all;
  EXPECT_EQ(longer.row(), small_prompt_avx512);
  question other("attention q=[1,64,8,64]f32 k=[1,64,8,64]");
  other.overlays.of_call = &all;
  EXPECT_EQ(other.row(), small_prompt_avx512);
}

TEST(Overlay, MatchesEveryFormOfCondition) {
  const auto decides = [](std::string_view conditions, std::string_view problem) {
    const overlay all = rules(std::string(conditions) + " => " + std::string(portable));
    question question(problem);
    question.overlays.of_call = &all;
    return question.answer()->tier == selection_tier::overlay;
  };
  EXPECT_TRUE(decides("*:", small_prompt));
  EXPECT_TRUE(decides("attention: head_dim=64", small_prompt));
  EXPECT_TRUE(decides("*: kv_len=64..", small_prompt));
  EXPECT_TRUE(decides("*: kv_len=..64 q_heads=8", small_prompt));
  EXPECT_FALSE(decides("*: kv_len=65..", small_prompt));
  EXPECT_FALSE(decides("*: kv_len=..63", small_prompt));
  EXPECT_TRUE(decides("*: causal=false features=none mask=full", small_prompt));
  EXPECT_FALSE(decides("*: causal=true", small_prompt));
  EXPECT_TRUE(decides("*: features=soft_cap+bias window_left=-1",
                      "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64] logits_soft_cap=3 "
                      "bias_pre=[1,1,64,64]f32"));
}

TEST(Overlay, PatternsTakeTheCheapestRowOfThatForm) {
  const overlay all = rules("*: => attention.cpu_avx2.f32.*");
  question question(small_prompt);
  question.overlays.of_call = &all;
  EXPECT_EQ(question.row(), small_prompt_avx2);
  EXPECT_TRUE(matches_pattern("attention.*.d6?.*x256", small_prompt_avx512));
  EXPECT_FALSE(matches_pattern("attention.*.d6?", small_prompt_avx512));
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_FALSE(matches_pattern("?", ""));
  EXPECT_TRUE(matches_pattern("**a*b", "xaab"));
}

TEST(Overlay, RulesThatCannotRunRefuseOrArePassedOver) {
  question question(small_prompt);
  const overlay refuses = rules("*: => attention.cpu_avx512.f32.d128.*");
  question.overlays.of_call = &refuses;
  EXPECT_EQ(question.answer().code(), status_code::ineligible_row);
  EXPECT_EQ(question.answer().message(),
            "context.overlays: attention.cpu_avx512.f32.d128.* cannot run this problem: none of "
            "the 3 rows of that form fits; attention.cpu_avx512.f32.d128.896x256: head_dim is 64, "
            "the row "
            "has 128");
  const overlay unknown = rules("*: => nothing");
  question.overlays.of_call = &unknown;
  EXPECT_EQ(question.answer().code(), status_code::unknown_row);
  const overlay passes =
      rules("*: =>? attention.cpu_avx512.f32.d128.*\n*: => " + std::string(small_prompt_avx2));
  question.overlays.of_call = &passes;
  EXPECT_EQ(question.row(), small_prompt_avx2);
  question.overlays.of_call = &refuses;
  question.policy.on_ineligible = ineligible_override::fall_through;
  EXPECT_EQ(question.row(), small_prompt_avx512);
}

TEST(Overlay, TheCallsOwnComesFirstThenTheThreadsThenTheProcess) {
  const overlay mine = rules("*: => " + std::string(small_prompt_avx2));
  const overlay everyones = rules("*: => " + std::string(portable));
  question question(small_prompt);
  question.overlays.of_process = &everyones;
  EXPECT_EQ(question.row(), portable);
  const overlay_scope scope(mine);
  question.overlays.of_thread = overlay_scope::innermost();
  EXPECT_EQ(question.row(), small_prompt_avx2);
  question.overlays.of_call = &everyones;
  EXPECT_EQ(question.row(), portable);
  question.row_of_call = small_prompt_avx512;
  EXPECT_EQ(question.row(), small_prompt_avx512);
}

TEST(Properties, OverlaysNestInnermostWinsUnwindAndLeaveOtherThreadsAlone) {
  const overlay outer = rules("*: => " + std::string(portable));
  const overlay inner = rules("*: q_len=64 => " + std::string(small_prompt_avx2));
  EXPECT_EQ(row_here(), small_prompt_avx512);
  {
    const overlay_scope around(outer);
    EXPECT_EQ(row_here(), portable);
    try {
      const overlay_scope within(inner);
      EXPECT_EQ(row_here(), small_prompt_avx2);
      EXPECT_EQ(row_here(question("flash_attention q=[1,65,8,64]f32 k=[1,65,8,64]")), portable)
          << "what the inner scope does not match is for the outer one";
      std::thread([] { EXPECT_EQ(row_here(), small_prompt_avx512); }).join();
      throw std::runtime_error("unwinds");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(row_here(), portable);
    }
  }
  EXPECT_EQ(row_here(), small_prompt_avx512);
  EXPECT_EQ(overlay_scope::innermost(), nullptr);
}

TEST(Overlay, RememberedChoicesHoldUnderTheirOverlayOnly) {
  selection_memory memory;
  shared_memory shared;
  const overlay mine = rules("*: => " + std::string(small_prompt_avx2));
  const auto ask = [&] {
    question question(small_prompt);
    question.memory = &memory;
    question.process_memory = &shared;
    question.overlays.of_thread = overlay_scope::innermost();
    return *question.answer();
  };
  EXPECT_EQ(ask().row(), small_prompt_avx512);
  EXPECT_TRUE(ask().remembered);
  for (int round = 0; round < 2; ++round) {
    const overlay_scope scope(mine);
    const auto first = ask();
    EXPECT_EQ(first.row(), small_prompt_avx2);
    const auto again = ask();
    EXPECT_TRUE(again.remembered);
    EXPECT_EQ(again.tier, selection_tier::overlay);
    const overlay_scope twice(mine);
    EXPECT_FALSE(ask().remembered) << "another stack of scopes";
  }
  EXPECT_EQ(ask().row(), small_prompt_avx512);
}

TEST(Overlay, ResultsOfTuningAreRules) {
  question first_question(small_prompt);
  const overlay found = overlay_of(std::vector{line_for(first_question, small_prompt_avx2)});
  first_question.overlays.of_call = &found;
  EXPECT_EQ(first_question.row(), small_prompt_avx2);
  question other("flash_attention q=[1,200,8,64]f32 k=[1,200,8,64]");
  other.overlays.of_call = &found;
  EXPECT_EQ(other.row(), small_prompt_avx512);
}

TEST(Overlay, TextIsRefusedWithTheLineAndTheWord) {
  const auto refusal = [](std::string_view lines) { return parse_overlay(lines).message(); };
  EXPECT_EQ(refusal("*: => a; # fine\n\nflash_attention q_len=1 => b"),
            "overlay: line 3: 'flash_attention q_len=1 => b' is no rule, must be <op>: "
            "<field>=<value>... => <row>");
  EXPECT_EQ(refusal("softmax: => a")
                .find("overlay: line 1: 'softmax' is no operation, must be * or "
                      "one of flash_attention, attention"),
            0u);
  EXPECT_EQ(
      refusal("attention: colour=1 => a")
          .find("overlay: line 1: 'colour' is no field of the operation, the fields are type, "
                "mask, features, head_dim, "),
      0u);
  EXPECT_EQ(refusal("attention: q_len => a"),
            "overlay: line 1: 'q_len' is no condition, must be field=value or field=low..high");
  EXPECT_EQ(refusal("attention: q_len=9..3 => a"),
            "overlay: line 1: 'q_len=9..3' is no range, must be low..high with whole numbers");
  EXPECT_EQ(refusal("attention: => a b"),
            "overlay: line 1: 'a b' is no row, must be one name or pattern");
  EXPECT_EQ(refusal("attention: =>"), "overlay: line 1: '' is no row, must be one name or pattern");
}

TEST(Overlay, ComesFromAFile) {
  const auto path = std::filesystem::temp_directory_path() / "tessera_overlay_test.txt";
  std::ofstream(path) << "# rules of a test\n*: q_len=64 => " << small_prompt_avx2 << "\n";
  const result<overlay> read = read_overlay(path.string());
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(read->rules().size(), 1u);
  std::ofstream(path) << "nonsense\n";
  EXPECT_EQ(read_overlay(path.string()).message().find(path.string() + ": overlay: line 1: "), 0u);
  std::filesystem::remove(path);
  EXPECT_EQ(read_overlay(path.string()).message(),
            path.string() + ": cannot be read: No such file or directory");
}

}  // namespace
}  // namespace tessera::testing
