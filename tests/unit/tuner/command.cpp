// `tessera tune` and `tessera select` as a user types them.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <tessera/runtime/device_facts.hpp>

#include "tests/unit/tools/command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

constexpr const char* two_problems =
    "# recorded by a test\n"
    "flash_attention q=[1,40,4,64]f32 k=[1,40,2,64] causal=true # count=30\n"
    "flash_attention q=[1,1,8,128]bf16 k=[1,200,2,128] causal=true # count=900\n";

std::vector<json::object> lines_of(const outcome& ended) {
  std::vector<json::object> lines;
  std::istringstream text(ended.out);
  for (std::string line; std::getline(text, line);) {
    boost::system::error_code error;
    const json::value value = json::parse(line, error);
    EXPECT_FALSE(error) << error.message() << " in " << line;
    if (value.is_object()) lines.push_back(value.as_object());
  }
  return lines;
}

class Command : public ::testing::Test {
 protected:
  Command() { write_file(trace, two_problems); }
  outcome tessera(const std::string& arguments) const {
    return invoke(arguments, "OMP_NUM_THREADS=2 TESSERA_TABLE_DIR='" + (folder / "tables") + "'");
  }

  const scratch_folder folder;
  const std::string trace = folder / "trace.txt";
};

TEST_F(Command, DryRunMeasuresAndWritesNothing) {
  const outcome ended = tessera("tune --trace '" + trace + "' --dry-run");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("Nothing was measured"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("900"), std::string::npos) << ended.out;
  EXPECT_FALSE(fs::exists(folder / "tables"));
}

TEST_F(Command, TuneTellsEveryCandidateAndResumesFromItsLog) {
  const outcome first = tessera("tune --accept-disturbed --quiet --json --trace '" + trace + "'");
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  const auto lines = lines_of(first);
  ASSERT_EQ(lines.size(), 4u);  // heading, two problems, summary
  EXPECT_EQ(lines[0].at("tessera").as_string(), "tune");
  for (std::size_t n = 1; n <= 2; ++n) {
    const json::object& object = lines[n];
    EXPECT_FALSE(object.at("skipped").as_bool());
    EXPECT_GE(object.at("gain").to_number<double>(), 1.0);
    EXPECT_GE(object.at("hold_out_gain").to_number<double>(), 0.0);
    const json::array& candidates = object.at("candidates").as_array();
    EXPECT_GE(candidates.size(), 2u);
    const bool has_default = std::any_of(
        candidates.begin(), candidates.end(),
        [&](const json::value& row) { return row.at("row") == object.at("default_row"); });
    EXPECT_TRUE(has_default);
    for (const json::value& row : candidates) {
      const std::string state(row.at("state").as_string());
      EXPECT_TRUE(state == "timed" || state == "abandoned") << json::serialize(row);
      EXPECT_GT(row.at("median_us").to_number<double>(), 0);
    }
  }
  const json::object& summary = lines[3].at("summary").as_object();
  EXPECT_GE(summary.at("worst_gain").to_number<double>(), 0.98);
  EXPECT_GE(summary.at("geometric_mean_gain").to_number<double>(), 1.0);
  EXPECT_EQ(summary.at("failed_rows").to_number<int>(), 0);

  const auto again =
      lines_of(tessera("tune --accept-disturbed --quiet --json --trace '" + trace + "'"));
  ASSERT_EQ(again.size(), 4u);
  EXPECT_TRUE(again[1].at("skipped").as_bool());
  EXPECT_EQ(again[1].at("row"), lines[1].at("row"));
  EXPECT_EQ(again[3].at("summary").at("skipped").to_number<int>(), 2);
}

TEST_F(Command, TheNextRunTakesWhatWasTuned) {
  // A table line for a row that is not the default: `explain` must answer with the table.
  const outcome tuned =
      tessera("tune --accept-disturbed --quiet --json --min-gain 1 --trace '" + trace + "'");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  for (const json::object& object : lines_of(tuned)) {
    if (!object.contains("decision")) continue;
    const outcome explained = tessera("explain flash_attention --threads 2 --json --problem '" +
                                      std::string(object.at("problem").as_string()) + "'");
    ASSERT_EQ(explained.status, 0) << explained.err;
    const json::value answer = json_of(explained);
    EXPECT_EQ(answer.at("row"), object.at("row"));
    const bool in_table = object.at("decision").as_string() == "tuned";
    EXPECT_EQ(answer.at("tier").as_string(), in_table ? "persistent" : "heuristic");
  }
}

TEST_F(Command, SelectWritesRowsOfTheBuildThatServeEverything) {
  ASSERT_EQ(tessera("tune --accept-disturbed --quiet --json --trace '" + trace + "'").status, 0);
  const std::string rows = folder / "rows.txt";
  const std::string lookup = folder / "rows.lookup";
  const outcome ended = tessera("select --json --trace '" + trace + "' --loss 3% --output '" +
                                rows + "' --lookup '" + lookup + "'");
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value answer = json_of(ended);
  EXPECT_TRUE(answer.at("exact").as_bool());
  EXPECT_LE(answer.at("loss").to_number<double>(), 0.03 + 1e-9);
  // A processor without vector instructions has nothing but rows for any problem.
  const bool special = tessera::this_device().highest != tessera::backend::cpu_generic;
  EXPECT_EQ(answer.at("fallbacks").to_number<int>() == 0, special);
  EXPECT_GT(answer.at("times_measured").to_number<int>(), 0);
  EXPECT_EQ(answer.at("rows").as_array().size(), 2u);  // f32 and bf16 share no row
  std::set<std::string> known;
  const json::value list = json_of(tessera("list --json"));
  for (const json::value& row : list.at("rows").as_array()) {
    known.insert(std::string(row.at("name").as_string()));
  }
  std::size_t listed = 0;
  std::istringstream text(contents_of(rows));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(known.contains(line)) << line;
    ++listed;
  }
  EXPECT_EQ(listed, 2u);
  EXPECT_EQ(tessera("table stats '" + lookup + "'").status, 0);
  const outcome people = tessera("select --trace '" + trace + "'");
  EXPECT_NE(people.out.find("the fewest possible"), std::string::npos) << people.out;
}

TEST_F(Command, AGpuThatIsNotThereIsTheAnswerNo) {
  for (const char* command : {"tune", "tune --dry-run", "select"}) {
    const outcome ended =
        tessera(std::string(command) + " --backend cuda:63 --trace '" + trace + "'");
    EXPECT_EQ(ended.status, 1) << command;
    EXPECT_NE(ended.err.find("--backend: cuda:63"), std::string::npos) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    expect_refusal(tessera(std::string(command) + " --backend gpu --trace '" + trace + "'"),
                   "--backend");
  }
  EXPECT_EQ(tessera("tune --backend cpu --dry-run --trace '" + trace + "'").status, 0);
}

TEST_F(Command, RefusalsNameFileLineAndFact) {
  write_file(trace, "flash_attention q=[1,4,3,64]f32 k=[1,4,2,64]\n");
  expect_refusal(tessera("tune --trace '" + trace + "'"), "trace.txt:1: ");
  write_file(trace, "# only a comment\n");
  expect_refusal(tessera("tune --trace '" + trace + "'"), "has 0 problems");
  write_file(trace, "flash_attention q=[1,4,2,64]f32 k=[1,4,2,64] # count=none\n");
  expect_refusal(tessera("select --trace '" + trace + "'"), "trace.txt:1: ");
  expect_refusal(tessera("tune"), "--trace");
  expect_refusal(tessera("tune --trace '" + (folder / "absent") + "'"), "absent");
  write_file(trace, two_problems);
  expect_refusal(tessera("select --trace '" + trace + "' --loss lots"), "--loss");
  expect_refusal(
      tessera("tune --accept-disturbed --trace '" + trace + "' --output /proc/table/lookup.txt"),
      "/proc");
}

}  // namespace
