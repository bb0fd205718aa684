// Bad input: one message that names the file, the field, the fact and the values; no page.
#include <string>

#include <gtest/gtest.h>

#include "inputs.hpp"

namespace {

using namespace tessera::testing;

/// Runs `report` on one file and expects a refusal that names it and says each of `facts`.
void expect_refused(const std::string& content, std::initializer_list<std::string> facts) {
  const scratch_folder folder;
  const std::string file = folder / "input.json";
  const std::string page = folder / "page.html";
  write_file(file, content);
  const outcome ended = invoke("report '" + file + "' -o '" + page + "'");
  expect_refusal(ended, file);
  for (const std::string& fact : facts) expect_refusal(ended, fact);
  EXPECT_FALSE(std::filesystem::exists(page));
}

/// A record whose first case has one member replaced.
std::string record_with(const std::string& member, const json::value& value) {
  json::array cases = three_cases();
  cases[0].get_object()[member] = value;
  return json::serialize(bench_record(cases));
}

TEST(refusals, unknown_files_are_named) {
  expect_refused("", {"0 bytes"});
  expect_refused(" \n", {"nothing in them"});
  expect_refused("hello\n", {"none of the files a report is made from", "lookup table"});
  expect_refused("{\"rows\": [], \"tiles\": 3}", {"\"rows\", \"tiles\"", "benchmarks"});
  expect_refused("[1, 2]", {"no object"});
  expect_refused("{\"context\": ", {"not JSON"});
  const outcome missing = invoke("report no/such/file.json -o page.html");
  expect_refusal(missing, "no/such/file.json");
}

TEST(refusals, fields_of_another_kind_are_named_with_their_value) {
  expect_refused("{\"context\": 3, \"benchmarks\": []}", {"context is 3"});
  expect_refused("{\"context\": {}, \"benchmarks\": {}}", {"benchmarks is {}", "array"});
  expect_refused("{\"context\": {}, \"benchmarks\": [7]}", {"benchmarks[0] is 7"});
  expect_refused("{\"context\": {}, \"benchmarks\": [{}]}", {"benchmarks[0]: name is missing"});
  expect_refused("{\"context\": {\"read_gbytes\": \"fast\"}, \"benchmarks\": []}",
                 {"read_gbytes is \"fast\", must be a number"});
  expect_refused(record_with("median_us", "soon"), {"benchmarks[0]", "median_us is \"soon\""});
  expect_refused(record_with("median_us", 0), {"median_us is 0"});
  expect_refused(record_with("GFLOP/s", -3), {"GFLOP/s is -3, must be at least 0"});
  expect_refused(record_with("of_ceiling", true), {"of_ceiling is true"});
  expect_refused(record_with("label", 5), {"label is 5, must be a string"});
}

TEST(refusals, numbers_that_contradict_each_other_are_named_both) {
  expect_refused(record_with("flops", 1e9),
                 {"GFLOP/s is 60.491297540551216", "flops 1000000000 in 2218.793999418267 us"});
  json::array cases = three_cases();
  cases[1].get_object()["lower_quartile_us"] = 9.0;
  cases[1].get_object()["upper_quartile_us"] = 4.0;
  expect_refused(json::serialize(bench_record(cases)),
                 {"benchmarks[1]", "lower_quartile_us is 9", "upper_quartile_us is 4"});
}

TEST(refusals, tune_results_are_refused_by_line_and_field) {
  const json::object sound = tuned_problem("a=1", {{"r.a", 10}, {"r.b", 8}});
  json::object object = sound;
  object.erase("problem");
  expect_refused(tune_results({sound, object}), {".json:3", "problem is missing"});
  object = sound;
  object["median_us"] = 4;
  expect_refused(tune_results({object}), {"median_us is 4", "candidate r.b has 8"});
  object = sound;
  object["row"] = nullptr;
  expect_refused(tune_results({object}), {"row is missing", "decision is \"tuned\""});
  object = sound;
  object["candidates"].get_array()[1].get_object().erase("median_us");
  expect_refused(tune_results({object}), {"candidates[1]", "median_us is missing"});
  expect_refused(tune_results({sound}) + "{broken\n", {".json:4", "not JSON"});
}

TEST(refusals, cost_lines_are_refused_by_line_and_field) {
  const std::string head = "# Written by tools/measure-cost: row, seconds, MiB, bytes.\n";
  expect_refused(head + "row 1 2\n", {":2", "has 3 fields", "4"});
  expect_refused(head + "row 1 2 many\n", {":2", "field 4 of row row is \"many\""});
  expect_refused(head + "row -1 2 3\n", {"field 2", "\"-1\""});
  expect_refused(head + "row 1 2 3 168\n", {":2", "has 5 fields", "6"});
  expect_refused(head + "row 1 2 3 168 none\n", {"field 6 of row row is \"none\""});
}

TEST(refusals, damaged_lines_of_a_table_are_named_and_cost_only_themselves) {
  std::string damaged = line_of(lookup_line("q_len=2", "family.a.16x64", 16));
  damaged[damaged.size() / 2] ^= 1;
  const std::string text = std::string(tessera::table_heading) + "\n" +
                           line_of(lookup_line("q_len=1", "family.a.112x256", 31.25)) + "\n" +
                           damaged + "\n" +
                           line_of(lookup_line("q_len=4", "family.a.112x256", 62.5)) + "\n";
  const made_page page = page_of({{"lookup.txt", text}}, "--json");
  const json::value said = json_of(page.ended);
  EXPECT_EQ(said.at("problems").as_int64(), 2);
  ASSERT_EQ(said.at("files").at(0).at("bad_lines").as_array().size(), 1u);
  EXPECT_TRUE(shows(*page.root, 31.25));
  EXPECT_TRUE(shows(*page.root, 62.5));
  EXPECT_NE(page.root->words().find("line 3: "), std::string::npos);
}

TEST(refusals, files_that_collide_are_refused) {
  const scratch_folder folder;
  const std::string file = folder / "a.json";
  const std::string content = json::serialize(bench_record(three_cases()));
  write_file(file, content);
  expect_refusal(invoke("report '" + file + "' '" + file + "' -o '" + folder / "p.html" + "'"),
                 "given 2 times");
  expect_refusal(invoke("report '" + file + "' -o '" + file + "'"), "also one of the 1 files");
  EXPECT_EQ(contents_of(file), content);
  expect_refusal(invoke("report '" + file + "' -o '" + folder / "no/such/p.html" + "'"),
                 "no/such/p.html");
  expect_refusal(invoke("report '" + file + "' -o /dev/full"), "/dev/full");
  expect_refusal(invoke("report '" + file + "'"), "--output");
  expect_refusal(invoke("report -o page.html"), "FILE");
}

}  // namespace
