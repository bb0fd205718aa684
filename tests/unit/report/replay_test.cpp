// A replay in a report: its steps, its rows and what it could not do right.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "inputs.hpp"

namespace {

using namespace tessera::testing;

made_page page_of_replay(const json::object& document) {
  return page_of({{"replay.json", json::serialize(document)}});
}

TEST(replay, every_number_of_it_is_in_the_page) {
  const made_page page = page_of_replay(replay_document(6));
  for (const double number : {1234.5, 17.25, 3.125, 0.0625, 2500.0, 9000.0, 21000.0, 40.5}) {
    EXPECT_TRUE(shows(*page.root, number)) << number;
  }
  const auto rows = rows_with(*page.root, "attention.made.decode");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(shows(*rows[0], 5.0));
  EXPECT_TRUE(shows(*rows[0], 250000.0)) << "microseconds";
  EXPECT_TRUE(shows(*rows[0], 0.0078125)) << "error";
  EXPECT_TRUE(shows(*rows[0], 0.5)) << "bound";
  EXPECT_NE(rows[0]->words().find("28 x full"), std::string::npos);
  EXPECT_NE(page.root->words().find("arrivals poisson rate=0.5"), std::string::npos);
  EXPECT_NE(page.root->words().find("3 steps were checked against the definition, all right"),
            std::string::npos);
}

TEST(replay, is_counted) {
  const made_page page = page_of({{"replay.json", json::serialize(replay_document(3))}}, "--json");
  EXPECT_EQ(json_of(page.ended).at("replays").as_int64(), 1);
  EXPECT_EQ(json_of(page.ended).at("cases").as_int64(), 0);
}

TEST(replay, marks_of_both_pictures_lead_to_their_steps) {
  for (const std::size_t steps : {1u, 6u, 96u, 97u, 1000u}) {
    const made_page page = page_of_replay(replay_document(steps));
    std::size_t pictures = 0;
    for (const node* picture : page.root->all("svg")) {
      if (!picture->has_class("chart")) continue;
      ++pictures;
      const auto marks = picture->all("a");
      EXPECT_GE(marks.size(), std::min<std::size_t>(steps, 48));
      EXPECT_LE(marks.size(), 96u);
      for (const node* mark : marks) {
        EXPECT_NE(page.root->with_id(mark->attribute("href").substr(1)), nullptr);
      }
    }
    EXPECT_EQ(pictures, 4u) << "time and pages, each for wide and for narrow screens";
  }
}

TEST(replay, says_where_nothing_was_checked) {
  json::object document = replay_document(3);
  document["checked_steps"] = 0;
  document["layers"].get_array()[0].get_object()["checked_sequences"] = 0;
  const made_page page = page_of_replay(document);
  EXPECT_NE(page.root->words().find("No step was checked against the definition."),
            std::string::npos);
  EXPECT_EQ(page.root->words().find("all right"), std::string::npos);
  EXPECT_FALSE(shows(*rows_with(*page.root, "attention.made.decode").at(0), 0.0078125));
}

TEST(replay, complaints_are_shown) {
  json::object document = replay_document(3);
  document["layers"].get_array()[0].get_object()["complaint"] = "page 3, slot 1 is not token 7";
  const made_page page = page_of_replay(document);
  EXPECT_NE(page.root->words().find("full: page 3, slot 1 is not token 7"), std::string::npos);
  EXPECT_EQ(page.root->words().find("all right"), std::string::npos);
}

TEST(replay, a_replay_without_steps_is_a_page) {
  const made_page page = page_of_replay(replay_document(0));
  EXPECT_NE(page.root->words().find("The replay has no step."), std::string::npos);
}

TEST(replay, numbers_that_count_nothing_are_shown_as_they_are) {
  json::object document = replay_document(3);
  document["checked_steps"] = 1.5;
  document["columns"].get_object()["tokens"] = json::array{1e300, 2.5, 1};
  const std::string words = page_of_replay(document).root->words();
  for (const char* text : {"1e+300 tokens", "2.5 tokens", "1 token,", "1.5 steps were checked"}) {
    EXPECT_NE(words.find(text), std::string::npos) << text;
  }
}

TEST(replay, what_is_wrong_is_named) {
  const scratch_folder folder;
  const auto refused = [&](const json::object& document, const std::string& fact) {
    write_file(folder / "replay.json", json::serialize(document));
    expect_refusal(invoke("report " + (folder / "replay.json") + " -o " + (folder / "page.html")),
                   fact);
  };
  json::object short_column = replay_document(4);
  short_column["columns"].get_object()["tokens"] = json::array{1, 2};
  refused(short_column, "columns: tokens has 2 steps, clock has 4");
  json::object words = replay_document(4);
  words["columns"].get_object()["milliseconds"] = json::array{1, "soon", 2, 3};
  refused(words, "milliseconds[1] is \"soon\", must be a number from 0");
  json::object bare = replay_document(4);
  bare.erase("totals");
  refused(bare, "totals is missing, must be an object");
}

}  // namespace
