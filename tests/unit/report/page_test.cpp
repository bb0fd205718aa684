// The page itself: well-formed whatever is in it, complete in one file, readable for everybody.
#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "inputs.hpp"

namespace {

using namespace tessera::testing;

std::string everything_in_lookup() {
  return std::string(tessera::table_heading) + "\n" +
         line_of(lookup_line("q_len=1 kv_len=512", "family.a.112x256", 31.25)) + "\n";
}

made_page full_page() {
  std::vector<json::object> problems;
  for (const char* size : {"q_len=1 kv_len=1", "q_len=2 kv_len=1", "q_len=4 kv_len=1"}) {
    problems.push_back(tuned_problem(size, {{"family.a.16x64", 10}, {"family.a.112x256", 8}}));
  }
  return page_of({{"bench.json", json::serialize(bench_record(three_cases()))},
                  {"tune.jsonl", tune_results(problems)},
                  {"replay.json", json::serialize(replay_document(9))},
                  {"lookup.txt", everything_in_lookup()}});
}

std::map<std::string, std::size_t> elements_of(const node& page) {
  std::map<std::string, std::size_t> counts;
  page.visit([&](const node& node) {
    if (!node.name.empty()) ++counts[node.name];
  });
  counts.erase("wbr");  // follows the dots of names
  return counts;
}

TEST(page, names_are_unique_and_links_lead_somewhere) {
  const made_page page = full_page();
  std::set<std::string> ids;
  page.root->visit([&](const node& node) {
    const std::string id = node.attribute("id");
    EXPECT_TRUE(id.empty() || ids.insert(id).second) << id;
  });
  std::size_t links = 0;
  for (const node* link : page.root->all("a")) {
    const std::string target = link->attribute("href");
    ASSERT_TRUE(target.starts_with("#")) << target;
    EXPECT_TRUE(ids.contains(target.substr(1))) << target;
    ++links;
  }
  EXPECT_GT(links, 10u);
}

TEST(page, nothing_is_fetched) {
  const made_page page = full_page();
  page.root->visit([](const node& node) {
    EXPECT_TRUE(node.name != "img" && node.name != "iframe" && node.name != "object") << node.name;
    EXPECT_EQ(node.attribute("src"), "");
    EXPECT_TRUE(node.name != "link" || node.attribute("href") == "data:,");
    for (const auto& [key, value] : node.attributes) EXPECT_FALSE(key.starts_with("on")) << key;
  });
  for (const char* word :
       {"url(", "@import", "fetch(", "XMLHttpRequest", "//cdn", "localStorage"}) {
    EXPECT_EQ(page.text.find(word), std::string::npos) << word;
  }
  bool policy = false;
  for (const node* node : page.root->all("meta")) {
    policy = policy || node->attribute("content").starts_with("default-src 'none'");
  }
  EXPECT_TRUE(policy);
}

TEST(page, hostile_names_stay_text) {
  const std::string hostile =
      "</td></title></style></script><script>alert(1)</script><img src=x onerror=alert(2)> "
      "\"'& ]]> <!-- &lt; \xe2\x80\xae";
  json::array benign{bench_case("group/name", "row", 10, 20, 5, 0.5)};
  json::array evil{bench_case("group/" + hostile, hostile, 10, 20, 5, 0.5)};
  json::object benign_record = bench_record(benign), evil_record = bench_record(evil);
  benign_record["context"].get_object()["host_name"] = "name";
  evil_record["context"].get_object()["host_name"] = hostile;
  const std::vector<json::object> benign_tune{tuned_problem("a=1", {{"r.a", 10}, {"r.b", 8}})};
  const std::vector<json::object> evil_tune{
      tuned_problem("a=" + hostile, {{"r." + hostile, 10}, {"r.b" + hostile, 8}})};
  const made_page plain =
      page_of({{"a.json", json::serialize(benign_record)}, {"t.jsonl", tune_results(benign_tune)}});
  const made_page page = page_of(
      {{"a <b> & \"c\".json", json::serialize(evil_record)}, {"t.jsonl", tune_results(evil_tune)}},
      "--title '</title><script>alert(3)</script>'");
  EXPECT_EQ(elements_of(*page.root), elements_of(*plain.root));
  EXPECT_EQ(page.root->all("script").size(), 1u);
  EXPECT_NE(page.root->words().find("<script>alert(1)</script><img src=x onerror=alert(2)>"),
            std::string::npos);
  EXPECT_EQ(page.text.find("\xe2\x80\xae"), std::string::npos) << "a mark that turns text around";
}

TEST(page, bytes_that_are_no_text_are_replaced) {
  tessera::lookup_record record = lookup_line("q_len=1", "row", 8);
  record.environment = "bad \xff\xfe \x01 \xed\xa0\x80 \xc0\xaf end";
  const made_page page = page_of({{"lookup.txt", line_of(record) + "\n"}});
  EXPECT_NE(page.text.find("\xef\xbf\xbd"), std::string::npos);
  for (const char* bytes : {"\xff", "\xfe", "\x01", "\xed\xa0\x80", "\xc0\xaf"}) {
    EXPECT_EQ(page.text.find(bytes), std::string::npos);
  }
  EXPECT_NE(page.root->words().find(" end"), std::string::npos);
}

TEST(page, empty_and_partial_inputs_give_a_page_that_says_what_is_missing) {
  const made_page no_cases = page_of_record(bench_record({}));
  EXPECT_NE(no_cases.root->words().find("The record has no case."), std::string::npos);
  EXPECT_NE(no_cases.root->words().find("tessera tune --json"), std::string::npos);

  json::object bare = bench_record(three_cases());
  bare["context"] = json::object{};
  const made_page no_ceilings = page_of_record(bare);
  EXPECT_NE(no_ceilings.root->words().find("no measured ceilings"), std::string::npos);
  EXPECT_EQ(rows_with(*no_ceilings.root, "prefill/two").size(), 1u);

  const made_page no_bench = page_of({{"lookup.txt", everything_in_lookup()}});
  EXPECT_NE(no_bench.root->words().find("tools/bench"), std::string::npos);

  json::array sparse{
      json::object{{"name", "foreign/case"}, {"real_time", 5.0}, {"time_unit", "us"}},
      json::object{{"name", "nothing"}}};
  const made_page little = page_of_record(bench_record(sparse));
  EXPECT_TRUE(shows(*little.root, 5.0));
  EXPECT_EQ(rows_with(*little.root, "nothing").size(), 1u);
}

TEST(page, pictures_and_tables_have_labels) {
  const made_page page = full_page();
  EXPECT_EQ(page.root->attribute("lang"), "en");
  for (const node* picture : page.root->all("svg")) {
    const bool decoration = picture->attribute("aria-hidden") == "true";
    EXPECT_TRUE(decoration || !picture->attribute("aria-label").empty());
  }
  for (const node* table : page.root->all("table")) {
    EXPECT_EQ(table->all("caption").size(), 1u);
    const auto heads = table->all("thead");
    ASSERT_EQ(heads.size(), 1u);
    const std::size_t columns = heads[0]->all("th").size();
    for (const node* cell : heads[0]->all("th")) EXPECT_EQ(cell->attribute("scope"), "col");
    for (const node* body : table->all("tbody")) {
      for (const node* row : body->all("tr")) {
        std::size_t cells = 0;
        for (const auto& child : row->children) {
          cells += child->name == "td" || child->name == "th" ? 1 : 0;
        }
        EXPECT_EQ(cells, columns) << row->words();
      }
    }
  }
  std::vector<int> levels;
  page.root->visit([&](const node& node) {
    if (node.name.size() == 2 && node.name[0] == 'h' && std::isdigit(node.name[1]) != 0) {
      levels.push_back(node.name[1] - '0');
    }
  });
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), 1);
  for (std::size_t at = 1; at < levels.size(); ++at) EXPECT_LE(levels[at], levels[at - 1] + 1);
}

/// Relative luminance of "#rrggbb".
double luminance(const std::string& colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double value = std::stoi(colour.substr(1 + 2 * channel, 2), nullptr, 16) / 255.0;
    sum += weights[channel] *
           (value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(page, colours_have_contrast_in_both_themes) {
  const made_page page = full_page();
  const std::string style = page.root->all("style").at(0)->text;
  const std::regex block(R"(color-scheme:(light|dark)((;--[a-z0-9-]+:#[0-9a-f]{6})+))");
  std::size_t themes = 0;
  for (std::sregex_iterator theme(style.begin(), style.end(), block), end; theme != end; ++theme) {
    ++themes;
    std::map<std::string, std::string> colour;
    const std::string pairs = (*theme)[2];
    const std::regex pair(R"(--([a-z0-9-]+):(#[0-9a-f]{6}))");
    for (std::sregex_iterator found(pairs.begin(), pairs.end(), pair); found != end; ++found) {
      colour[(*found)[1]] = (*found)[2];
    }
    for (const char* ground : {"page", "panel", "under", "f1"}) {
      for (const char* text : {"ink", "soft", "link", "good", "bad"}) {
        EXPECT_GE(contrast(colour.at(text), colour.at(ground)), 4.5)
            << (*theme)[1] << ": " << text << " on " << ground;
      }
    }
    for (int at = 0; at <= 8; ++at) {
      EXPECT_GE(contrast(colour.at("ink"), colour.at("f" + std::to_string(at))), 4.5) << at;
      if (at == 0) continue;
      EXPECT_GE(contrast(colour.at("c" + std::to_string(at)), colour.at("panel")), 3) << at;
      EXPECT_GE(contrast(colour.at("c" + std::to_string(at)), colour.at("under")), 3) << at;
    }
    EXPECT_GE(contrast(colour.at("strong-line"), colour.at("panel")), 3);
  }
  EXPECT_EQ(themes, 3u) << "light, dark by preference, dark by the button";
}

}  // namespace
