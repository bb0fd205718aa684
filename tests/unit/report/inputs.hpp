// Files that a report is made from, with any content, and the page that comes out.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <tessera/lookup/record.hpp>

#include "page_reader.hpp"
#include "tests/unit/tools/command_runner.hpp"

namespace tessera::testing {

namespace json = boost::json;

/// A case with rates that agree with its ceilings.
inline json::object bench_case(const std::string& name, const std::string& row, double median_us,
                               double gflops, double gbytes, double of_ceiling) {
  return {{"name", name + "/manual_time"},
          {"run_type", "iteration"},
          {"iterations", 31},
          {"real_time", median_us * 1e3},
          {"cpu_time", median_us * 1e3},
          {"time_unit", "ns"},
          {"median_us", median_us},
          {"GFLOP/s", gflops},
          {"GB/s", gbytes},
          {"of_ceiling", of_ceiling},
          {"label", row}};
}

inline json::object bench_record(json::array cases) {
  return {{"context",
           {{"date", "2026-11-21T12:02:36+00:00"},
            {"host_name", "somewhere"},
            {"threads", "2"},
            {"fma_f32_gflops", "234.25"},
            {"bf16_dot_gflops", "468.5"},
            {"read_gbytes", "35.5"},
            {"copy_gbytes", "52.25"}}},
          {"benchmarks", std::move(cases)}};
}

inline json::array three_cases() {
  return {bench_case("decode/one q=[1,1,8,128]f32", "family.a.16x64", 2218.793999418267,
                     60.491297540551216, 15.130265126, 15.130265126 / 35.5),
          bench_case("prefill/two q=[1,2048,8,128]f32", "family.a.112x256", 46296.567,
                     185.60000000000002, 0.375, 185.60000000000002 / 234.25),
          bench_case("prefill/three q=[1,2048,8,128]bf16", "family.a.224x256", 24170.25, 355.5625,
                     0.7, 355.5625 / 468.5)};
}

/// One problem of tune results; the first candidate is the default, the fastest the winner.
inline json::object tuned_problem(const std::string& size,
                                  const std::vector<std::pair<std::string, double>>& candidates) {
  json::array rows;
  auto best = candidates.front();
  for (const auto& candidate : candidates) {
    rows.push_back(json::object{{"row", candidate.first},
                                {"state", "timed"},
                                {"median_us", candidate.second},
                                {"spread_us", candidate.second * 0.01},
                                {"samples", 15}});
    if (candidate.second < best.second) best = candidate;
  }
  const bool tuned = best.first != candidates.front().first;
  return {{"op", "op"},
          {"problem", "op " + size},
          {"family", "family"},
          {"identity", "type=f32 head_dim=128"},
          {"size", size},
          {"device_class", "machine"},
          {"default_row", candidates.front().first},
          {"default_us", candidates.front().second},
          {"row", best.first},
          {"median_us", best.second},
          {"spread_us", best.second * 0.01},
          {"decision", tuned ? "tuned" : "default"},
          {"reason", tuned ? "faster" : "default_best"},
          {"count", 1},
          {"candidates", std::move(rows)}};
}

inline std::string tune_results(const std::vector<json::object>& problems) {
  std::string text = R"({"tessera": "tune", "device": "machine of a test"})"
                     "\n";
  for (const json::object& object : problems) text += json::serialize(object) + "\n";
  return text + R"({"summary": {"seconds": 12.5}})"
                "\n";
}

inline lookup_record lookup_line(const std::string& size, const std::string& row, double us) {
  lookup_record record;
  record.family = "family";
  record.code_version = "0123456789abcdef";
  record.device_class = "machine";
  record.identity = "type=f32 head_dim=128";
  record.size = size;
  record.row = row;
  record.median_us = us;
  record.spread_us = us / 64;
  record.default_row = "family.a.16x64";
  record.default_us = us * 1.25;
  record.runner_up = "family.a.16x64";
  record.runner_up_us = us * 1.25;
  record.samples = 31;
  record.mode = "eager cold";
  record.source = "tune";
  record.environment = "a test";
  record.date = "2026-11-21T09:30:00Z";
  return record;
}

/// A replay of so many steps, every third of which reads prompts.
inline json::object replay_document(std::size_t steps) {
  const auto sums = [&](double rate) -> json::object {
    return {{"steps", steps},
            {"tokens", 40.5},
            {"tokens_per_second", rate},
            {"gflops_per_second", 17.25},
            {"gigabytes_per_second", 3.125},
            {"percent_of_read", 6.25},
            {"milliseconds", {{"p50", 2.5}, {"p99", 9}, {"max", 21}}}};
  };
  json::array clock, tokens, sequences, generating, pages, times;
  for (std::size_t n = 0; n < steps; ++n) {
    clock.emplace_back(n);
    tokens.emplace_back(n % 3 == 0 ? 64 : 4);
    sequences.emplace_back(4);
    generating.emplace_back(n % 3 == 0 ? 3 : 4);
    pages.emplace_back(10 + n % 20);
    times.emplace_back(n % 3 == 0 ? 20.5 : 2.5);
  }
  const json::object row{
      {"row", "attention.made.decode"}, {"tier", "heuristic"}, {"steps", 5}, {"seconds", 0.25}};
  const json::object layer{{"kind", "full"},           {"layers", 28},
                           {"rows", json::array{row}}, {"checked_sequences", 4},
                           {"error", 0.0078125},       {"error_bound", 0.5}};
  return {{"tessera", "replay"},
          {"device", "machine of a test"},
          {"model", {{"name", "made"}, {"dtype", "bf16"}}},
          {"trace",
           {{"file", "made.txt"}, {"statement", {"arrivals poisson rate=0.5"}}, {"pages", 32}}},
          {"totals", {{"evictions", 2}, {"requests_finished", 7}}},
          {"read_gigabytes_per_second", 50.5},
          {"steps", {{"all", sums(1234.5)}, {"decode_only", sums(1)}, {"with_prefill", sums(2)}}},
          {"layers", json::array{layer}},
          {"checked_steps", 3},
          {"passed", true},
          {"columns",
           {{"clock", clock},
            {"tokens", tokens},
            {"sequences", sequences},
            {"generating", generating},
            {"pages_used", pages},
            {"milliseconds", times}}}};
}

/// A page and how it was made.
struct made_page {
  outcome ended;
  std::string text;
  std::unique_ptr<node> root;
};

/// Runs `report` on files of a folder, by name and content, and reads the page.
inline made_page page_of(const std::vector<std::pair<std::string, std::string>>& files,
                         const std::string& flags = "") {
  const scratch_folder folder;
  std::string arguments = "report";
  for (const auto& [name, content] : files) {
    write_file(folder / name, content);
    arguments += " '" + folder / name + "'";
  }
  made_page made;
  made.ended = invoke(arguments + " -o '" + folder / "page.html" + "' " + flags);
  EXPECT_EQ(made.ended.status, 0) << made.ended.err;
  made.text = contents_of(folder / "page.html");
  try {
    made.root = page_reader(made.text).read();
  } catch (const std::runtime_error& broken) {
    ADD_FAILURE() << broken.what();
  }
  if (!made.root) made.root = std::make_unique<node>();
  return made;
}

inline made_page page_of_record(const json::object& record) {
  return page_of({{"bench.json", json::serialize(record)}});
}

/// Every number that the page carries with all its digits.
inline std::vector<double> numbers_of(const node& page) {
  std::vector<double> found;
  for (const node* node : page.all("data")) found.push_back(std::stod(node->attribute("value")));
  return found;
}

/// True if the page has this number. JSON readers before Boost 1.82 may miss its last bit.
inline bool shows(const node& page, double value) {
  for (const double number : numbers_of(page)) {
    if (std::abs(number - value) <= 0x1p-51 * std::abs(value)) return true;
  }
  return false;
}

/// Table rows that hold this text.
inline std::vector<const node*> rows_with(const node& page, const std::string& text) {
  std::vector<const node*> found;
  for (const node* row : page.all("tr")) {
    if (row->words().find(text) != std::string::npos) found.push_back(row);
  }
  return found;
}

inline std::size_t count_of(const node& page, std::string_view element, std::string_view style) {
  std::size_t count = 0;
  for (const node* node : page.all(element)) count += node->has_class(style) ? 1 : 0;
  return count;
}

}  // namespace tessera::testing
