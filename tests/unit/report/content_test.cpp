// What goes into a report comes out: every case, every problem, every number.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "inputs.hpp"

namespace {

using namespace tessera::testing;

TEST(content, every_case_and_every_number_of_a_bench_record_is_in_its_row) {
  const made_page page = page_of_record(bench_record(three_cases()));
  for (const json::value& value : three_cases()) {
    const json::object& object = value.get_object();
    std::string name(object.at("name").as_string());
    name.erase(name.find("/manual_time"));
    const auto rows = rows_with(*page.root, name);
    ASSERT_EQ(rows.size(), 1u) << name;
    EXPECT_NE(rows[0]->words().find(object.at("label").as_string().c_str()), std::string::npos);
    for (const char* counter : {"median_us", "GFLOP/s", "GB/s", "of_ceiling"}) {
      EXPECT_TRUE(shows(*rows[0], object.at(counter).as_double())) << name << " lacks " << counter;
    }
  }
  for (const double rate : {234.25, 468.5, 35.5, 52.25})
    EXPECT_TRUE(shows(*page.root, rate)) << rate;
}

TEST(content, a_picture_has_a_mark_for_every_case_with_an_intensity_and_the_mark_links_to_its_row) {
  json::array cases = three_cases();
  json::object without = bench_case("other/no bytes", "family.a.16x64", 10, 100, 1, 0.5);
  without.erase("GB/s");
  cases.push_back(without);
  const made_page page = page_of_record(bench_record(cases));
  std::size_t pictures = 0;
  for (const node* picture : page.root->all("svg")) {
    if (!picture->has_class("chart")) continue;
    ++pictures;
    const auto marks = picture->all("a");
    EXPECT_EQ(marks.size(), 3u);
    for (std::size_t at = 0; at < marks.size(); ++at) {
      const node* row = page.root->with_id(marks[at]->attribute("href").substr(1));
      ASSERT_NE(row, nullptr);
      const auto titles = marks[at]->all("title");
      ASSERT_EQ(titles.size(), 1u);
      const std::string name = row->all("span").front()->words();
      EXPECT_NE(titles[0]->words().find(name), std::string::npos) << name;
    }
  }
  EXPECT_EQ(pictures, 2u) << "one for wide and one for narrow screens";
  EXPECT_EQ(rows_with(*page.root, "other/no bytes").size(), 1u);
}

TEST(content, marks_stand_where_their_numbers_are) {
  json::array cases{bench_case("a/low", "r", 10, 10, 10, 0.5),
                    bench_case("a/high", "r", 10, 100, 10, 0.5),
                    bench_case("a/right", "r", 10, 10, 0.1, 0.5)};
  const made_page page = page_of_record(bench_record(cases));
  std::vector<std::pair<double, double>> places;
  for (const node* circle : page.root->all("circle")) {
    places.emplace_back(std::stod(circle->attribute("cx")), std::stod(circle->attribute("cy")));
  }
  ASSERT_EQ(places.size(), 6u);
  EXPECT_LT(places[1].second, places[0].second) << "ten times the rate is higher up";
  EXPECT_NEAR(places[2].second, places[0].second, 0.11);
  // 100 times the intensity is twice as far as 10 times, on a logarithmic axis.
  EXPECT_NEAR(places[2].first - places[0].first, 2 * (places[1].first - places[0].first), 0.3);
}

TEST(content, counters_of_any_name_are_shown) {
  json::array few{bench_case("a/one", "r", 10, 10, 10, 0.5)};
  few[0].get_object()["allocations"] = 0.125;
  EXPECT_TRUE(shows(*page_of_record(bench_record(few)).root, 0.125));
  json::array many{bench_case("a/one", "r", 10, 10, 10, 0.5)};
  for (int at = 0; at < 9; ++at) {
    many[0].get_object()["counter_" + std::to_string(at)] = at + 0.0625;
  }
  const made_page page = page_of_record(bench_record(many));
  for (int at = 0; at < 9; ++at) EXPECT_TRUE(shows(*page.root, at + 0.0625)) << at;
  EXPECT_EQ(page.root->with_id("case-1")->all("details").size(), 1u) << "too many for columns";
}

TEST(content, failed_cases_are_named_with_their_reason) {
  json::array cases = three_cases();
  cases.push_back(json::object{{"name", "features/broken/manual_time"},
                               {"run_type", "iteration"},
                               {"error_occurred", true},
                               {"error_message", "out[3] is 2, must be 1"}});
  const made_page page = page_of_record(bench_record(cases));
  const auto rows = rows_with(*page.root, "features/broken");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0]->words().find("out[3] is 2, must be 1"), std::string::npos);
}

TEST(content, disturbed_cases_are_marked_and_do_not_count_at_the_top) {
  json::array cases = three_cases();
  json::object disturbed = bench_case("prefill/four", "family.a.16x64", 10, 100, 1, 0.9375);
  disturbed["disturbed"] = 1.0;
  cases.push_back(disturbed);
  const made_page page = page_of_record(bench_record(cases));
  const auto rows = rows_with(*page.root, "prefill/four");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0]->words().find("disturbed"), std::string::npos);
  EXPECT_EQ(count_of(*page.root, "a", "hollow"), 2u) << "once in each picture";
  for (const node* list : page.root->all("dl")) {
    EXPECT_FALSE(list->has_class("tiles") && shows(*list, 0.9375));
  }
}

TEST(content, a_case_above_its_ceiling_is_noted) {
  json::array cases = three_cases();
  cases.push_back(bench_case("prefill/four", "family.a.16x64", 10, 468.5, 1, 2.0));
  const made_page page = page_of_record(bench_record(cases));
  EXPECT_NE(page.ended.err.find("1 of 4 cases above the ceiling"), std::string::npos);
  EXPECT_NE(page.root->words().find("1 of 4 cases above the ceiling"), std::string::npos);
}

TEST(content, a_peer_stands_beside_the_case_of_its_name) {
  json::array cases = three_cases();
  cases.push_back(
      bench_case("prefill/two q=[1,2048,8,128]f32", "peer:other 1.2", 92593.5, 1, 1, 1));
  const made_page page = page_of_record(bench_record(cases));
  const auto rows = rows_with(*page.root, "prefill/two");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(shows(*rows[0], 92593.5));
  EXPECT_NE(rows[0]->words().find("other 1.2, 2.00×"), std::string::npos) << rows[0]->words();
}

std::vector<json::object> problems() {
  std::vector<json::object> all;
  for (const int q : {1, 128, 2048}) {
    for (const int kv : {512, 8192}) {
      all.push_back(tuned_problem("q_len=" + std::to_string(q) + " kv_len=" + std::to_string(kv),
                                  {{"family.a.112x256", 100.0 + kv},
                                   {q == 1 ? "family.a.16x64" : "family.a.224x256", 80.5 + kv}}));
    }
  }
  all.push_back(
      tuned_problem("q_len=4096 kv_len=512", {{"family.a.112x256", 5}, {"family.a.16x64", 6}}));
  return all;
}

TEST(content, the_map_has_a_cell_for_every_problem) {
  const made_page page = page_of({{"tune.jsonl", tune_results(problems())}});
  EXPECT_EQ(count_of(*page.root, "td", "tile"), problems().size());
  EXPECT_EQ(count_of(*page.root, "td", "gap"), 1u) << "4096 by 8192 was not measured";
  std::map<std::string, std::size_t> cells;
  for (const node* cell : page.root->all("td")) {
    if (cell->has_class("tile")) ++cells[cell->attribute("title")];
  }
  EXPECT_EQ(cells["family.a.16x64"], 2u);
  EXPECT_EQ(cells["family.a.224x256"], 4u);
  EXPECT_EQ(cells["family.a.112x256"], 1u);
}

TEST(content, gains_are_those_of_the_input_and_so_is_their_mean) {
  const made_page page = page_of({{"tune.jsonl", tune_results(problems())}});
  double logarithms = 0;
  for (const json::object& object : problems()) {
    const auto rows = rows_with(*page.root, std::string(object.at("problem").as_string()));
    ASSERT_FALSE(rows.empty()) << object.at("problem");
    const double gain = object.at("default_us").as_double() / object.at("median_us").as_double();
    EXPECT_TRUE(shows(*rows[0], gain));
    EXPECT_TRUE(shows(*rows[0], object.at("median_us").as_double()));
    EXPECT_TRUE(shows(*rows[0], object.at("default_us").as_double()));
    logarithms += std::log(gain);
  }
  const double mean = std::exp(logarithms / static_cast<double>(problems().size()));
  bool found = false;
  for (const double value : numbers_of(*page.root))
    found = found || std::abs(value / mean - 1) < 1e-12;
  EXPECT_TRUE(found) << mean;
}

TEST(content, a_gain_that_was_measured_again_is_the_one_that_counts) {
  std::vector<json::object> values{problems().front()};
  values[0]["hold_out_gain"] = 1.0625;
  const made_page page = page_of({{"tune.jsonl", tune_results(values)}});
  const node* row = page.root->with_id("gain-1");
  ASSERT_NE(row, nullptr);
  EXPECT_TRUE(shows(*row, 1.0625));
  EXPECT_NE(row->words().find("1.06×"), std::string::npos);
}

TEST(content, rows_are_added_in_the_order_of_what_they_save) {
  const made_page page = page_of({{"tune.jsonl", tune_results(problems())}});
  std::vector<double> lost;
  for (int step = 1; page.root->with_id("step-" + std::to_string(step)) != nullptr; ++step) {
    lost.push_back(numbers_of(*page.root->with_id("step-" + std::to_string(step))).back());
  }
  ASSERT_GE(lost.size(), 2u);
  for (std::size_t at = 1; at < lost.size(); ++at) EXPECT_LE(lost[at], lost[at - 1]);
  EXPECT_EQ(lost.back(), 0) << "with every row nothing is lost";
}

TEST(content, every_line_of_a_lookup_table_is_shown_with_its_fields) {
  std::string text(tessera::table_heading);
  const std::vector<tessera::lookup_record> records{
      lookup_line("q_len=1 kv_len=512", "family.a.112x256", 31.25),
      lookup_line("q_len=2 kv_len=512", "family.a.224x256", 62.125),
      lookup_line("q_len=4 kv_len=512", "family.a.112x256", 124.0625)};
  for (const auto& record : records) text += "\n" + line_of(record);
  const made_page page = page_of({{"lookup.txt", text + "\n"}});
  const node* section = page.root->with_id("table");
  ASSERT_NE(section, nullptr);
  for (const auto& record : records) {
    const auto rows = rows_with(*section, record.size);
    ASSERT_EQ(rows.size(), 1u) << record.size;
    EXPECT_TRUE(shows(*rows[0], record.median_us));
    EXPECT_TRUE(shows(*rows[0], record.spread_us));
    EXPECT_TRUE(shows(*rows[0], record.default_us));
    for (const std::string& field : {record.row, record.default_row, record.code_version,
                                     record.environment, record.date, record.device_class}) {
      EXPECT_NE(rows[0]->words().find(field), std::string::npos) << field;
    }
  }
}

TEST(content, the_log_of_a_tune_gives_candidates_not_table_lines) {
  tessera::lookup_record slow = lookup_line("q_len=1", "family.a.16x64", 40);
  slow.source = "tune timed";
  tessera::lookup_record fast = lookup_line("q_len=1", "family.a.112x256", 32);
  fast.source = "tune timed";
  tessera::lookup_record wrong = lookup_line("q_len=1", "family.a.8x8", 1);
  wrong.source = "tune wrong: out differs";
  wrong.samples = 0;
  tessera::lookup_record decided = fast;
  decided.source = "tune decided: faster";
  std::string text(tessera::table_heading);
  for (const auto* record : {&slow, &fast, &wrong, &decided}) text += "\n" + line_of(*record);
  const made_page page = page_of({{"measurements.txt", text + "\n"}}, "--json");
  EXPECT_EQ(json_of(page.ended).at("problems").as_int64(), 1);
  ASSERT_NE(page.root->with_id("gain-1"), nullptr);
  EXPECT_TRUE(shows(*page.root->with_id("gain-1"), 32));
  EXPECT_FALSE(shows(*page.root->with_id("rows"), 1e-6)) << "a failed row has no time";
  EXPECT_NE(page.root->with_id("table")->words().find("No lookup table"), std::string::npos);
}

TEST(content, costs_and_device_facts_are_shown) {
  const made_page page = page_of(
      {{"cost.txt",
        "# Written by tools/measure-cost: row, seconds of one core, peak MiB, bytes.\n"
        "family.a.16x64 1.25 240 26551\n"},
       {"doctor.json", R"({"device": {"product": "Test Processor 9000"}, "ceilings": {}})"}});
  const auto rows = rows_with(*page.root->with_id("rows"), "family.a.16x64");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(shows(*rows[0], 1.25));
  EXPECT_TRUE(shows(*rows[0], 26551));
  EXPECT_NE(page.root->words().find("Test Processor 9000"), std::string::npos);
}

TEST(content, cuda_rows_have_registers_and_local_memory) {
  const made_page page = page_of(
      {{"cost.txt",
        "# Written by tools/measure-cost: row, seconds of one core, peak MiB, bytes; CUDA: ...\n"
        "family.a.16x64 1.25 240 26551\nfamily.b.16x64.w1b3 6.04 317 262272 168 12\n"}});
  const auto rows = rows_with(*page.root->with_id("rows"), "family.b.16x64.w1b3");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0]->words().find("168 + 12 B local"), std::string::npos) << rows[0]->words();
  EXPECT_NE(page.root->with_id("rows")->words().find("registers"), std::string::npos);
}

TEST(content, every_cost_file_of_the_build_is_read) {
  const std::string costs = std::string(TESSERA_SHAPES_DIR) + "/../../generated/cost/";
  for (const char* family : {"attention", "mean_pooling"}) {
    const scratch_folder folder;
    const std::string file = costs + family + ".txt";
    const outcome ended = invoke("report '" + file + "' -o '" + folder / "page.html" + "'");
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
}

TEST(content, the_same_input_gives_the_same_page) {
  const scratch_folder folder;
  write_file(folder / "a.json", json::serialize(bench_record(three_cases())));
  write_file(folder / "t.jsonl", tune_results(problems()));
  const std::string run = "report '" + folder / "a.json" + "' '" + folder / "t.jsonl" + "' -o '" +
                          folder / "page.html" + "'";
  ASSERT_EQ(invoke(run).status, 0);
  const std::string first = contents_of(folder / "page.html");
  ASSERT_EQ(invoke(run).status, 0);
  EXPECT_EQ(contents_of(folder / "page.html"), first);
}

}  // namespace
