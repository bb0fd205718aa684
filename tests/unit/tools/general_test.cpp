// What holds for every command: help, wrong use, statuses, output that cannot be written.
#include <string>

#include <gtest/gtest.h>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;

TEST(general, version_is_printed) {
  const outcome ended = invoke("--version");
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(ended.out.starts_with("tessera ")) << ended.out;
}

TEST(general, help_names_every_command) {
  const outcome ended = invoke("--help");
  EXPECT_EQ(ended.status, 0);
  for (const char* name : {"list", "run", "check", "model", "explain", "doctor", "tune", "select",
                           "table", "report"}) {
    EXPECT_NE(ended.out.find(std::string("\n  ") + name + " "), std::string::npos) << name;
  }
}

TEST(general, each_command_shows_an_example) {
  for (const char* name : {"list", "run", "check", "model", "explain", "doctor", "tune", "select",
                           "table", "report"}) {
    const outcome ended = invoke(std::string(name) + " --help");
    EXPECT_EQ(ended.status, 0) << name;
    EXPECT_NE(ended.out.find(std::string("Example:\n  tessera ") + name), std::string::npos)
        << ended.out;
  }
}

TEST(general, wrong_use_is_status_2_with_a_message) {
  expect_refusal(invoke(""), "no command");
  expect_refusal(invoke("lits"), "\"lits\" is not a command, there are list, run, check,");
  expect_refusal(invoke("--quiet lits"), "\"lits\" is not a command, there are list, run, check,");
  expect_refusal(invoke("tune"), "--trace");
  expect_refusal(invoke("select"), "--trace");
  expect_refusal(invoke("list --nonsense"), "--nonsense");
  expect_refusal(invoke("run flash_attention"), "--input");
  expect_refusal(invoke("run flash_attention --input x --threads 0"), "--threads");
  expect_refusal(invoke("run flash_attention --input x --repeat many"), "--repeat");
  expect_refusal(invoke("check --row a --all-rows x"), "--all-rows");
}

TEST(general, output_that_cannot_be_written_is_an_error_not_a_signal) {
  const outcome full = invoke("list --json >/dev/full");
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.err.find("stdout"), std::string::npos) << full.err;
}

TEST(general, a_reader_that_goes_away_is_no_error) {
  const scratch_folder folder;
  const std::string said = folder / "said";
  invoke("list 2>&3; echo status $? >&3; } 3>'" + said + "' | true", "{ sleep 0.2;");
  EXPECT_EQ(contents_of(said), "status 0\n");
}

TEST(general, hints_name_the_command_and_the_nearest_operation) {
  expect_refusal(invoke("select --nonsense"), "`tessera select --help`");
  expect_refusal(invoke("table dump --nonsense"), "`tessera table dump --help`");
  expect_refusal(invoke("list --op flash_attentoin"), "did you mean flash_attention?");
  expect_refusal(invoke("run flash_atention --input no.file"), "did you mean flash_attention?");
  EXPECT_EQ(invoke("list --op softmax").err.find("did you mean"), std::string::npos);
}

TEST(general, help_of_numbers_shows_their_type_alone) {
  EXPECT_NE(invoke("tune --help").out.find("--budget SECONDS "), std::string::npos);
  EXPECT_EQ(invoke("tune --help").out.find(" in ["), std::string::npos);
  expect_refusal(invoke("tune --max 0 --problems -"), "--max");
}

TEST(general, an_environment_value_that_means_nothing_gives_one_warning) {
  const outcome listed = invoke("list", "TESSERA_CPU=sse9");
  EXPECT_EQ(listed.status, 0);
  EXPECT_EQ(listed.err,
            "tessera: warning: TESSERA_CPU: 'sse9' is not a value it takes, and is ignored; valid "
            "are generic, avx2, avx512, avx512_vnni, avx512_bf16, amx_bf16\n");
  const std::string run = "run flash_attention --input '" + golden("flash_attention.full") + "'";
  for (const char* wrong : {"TESSERA_EXPLAIN=9", "TESSERA_EXPLAIN=1 TESSERA_CPU=sse9"}) {
    const outcome ended = invoke(run, wrong);
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::size_t first = ended.err.find("is not a value it takes");
    EXPECT_NE(first, std::string::npos) << wrong;
    EXPECT_EQ(ended.err.find("is not a value it takes", first + 1), std::string::npos) << ended.err;
  }
  EXPECT_EQ(invoke("doctor --quiet", "TESSERA_CPU=sse9").err, "");
}

TEST(general, a_trace_that_cannot_be_written_is_said) {
  const std::string run = "run flash_attention --input '" + golden("flash_attention.full") + "'";
  const scratch_folder folder;
  const std::string trace = folder / "trace";
  EXPECT_EQ(invoke(run, "TESSERA_RECORD='" + trace + "'").status, 0);
  EXPECT_TRUE(contents_of(trace).starts_with("flash_attention q=[2,33,2,16]f32"));
  EXPECT_EQ(contents_of(trace).find('\n'), contents_of(trace).size() - 1);
  const outcome nowhere = invoke(run, "TESSERA_RECORD='" + trace + "/none'");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_NE(nowhere.err.find("TESSERA_RECORD: " + trace + "/none: cannot be opened"),
            std::string::npos)
      << nowhere.err;
}

TEST(general, no_colour_and_no_progress_bar_without_a_terminal) {
  const outcome ended = invoke("list");
  EXPECT_EQ(ended.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
