// The table inside the library against the problems it was measured on: each of its lines answers a
// call that somebody can make, with a row that runs it.
#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/lookup/record.hpp>
#include <tessera/runtime/lookup/shipped.hpp>
#include <tessera/runtime/record.hpp>

namespace {

using namespace tessera;

/// The problems of tools/tuner/problems/reference.txt.
std::vector<std::string> reference_problems() {
  std::ifstream file(TESSERA_SHAPES_DIR "/../../tools/tuner/problems/reference.txt");
  std::vector<std::string> problems;
  for (std::string line; std::getline(file, line);) {
    const auto read = parse_trace_line(line);
    EXPECT_TRUE(read) << line << ": " << read.message();
    if (read && !read->problem.empty()) problems.push_back(read->problem);
  }
  return problems;
}

/// Threads that a line was measured with: its size ends with them.
int threads_of(std::string_view size) {
  const std::size_t at = size.rfind("threads=");
  return at == std::string_view::npos ? 0 : std::stoi(std::string(size.substr(at + 8)));
}

template <class Family>
bool serves(std::string_view problem) {
  const std::string_view op = problem.substr(0, problem.find(' '));
  return std::find(Family::ops.begin(), Family::ops.end(), op) != Family::ops.end();
}

/// The problem whose key a line has and which its row runs; empty if there is none.
template <class Family>
std::string problem_of_line(const lookup_record& line, const std::vector<std::string>& problems) {
  const auto rows = Family::registry();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& one) { return one.name == line.row; });
  if (row == rows.end()) return {};
  for (const std::string& text : problems) {
    if (!serves<Family>(text)) continue;
    const auto problem = Family::parse(text);
    EXPECT_TRUE(problem) << text << ": " << problem.message();
    if (!problem) continue;
    const auto demand = Family::demand_of(*problem);
    const key_text key = key_text_of<Family>(demand, threads_of(line.size), device_kind::cpu);
    const bool same = key.identity.view() == line.identity && key.size.view() == line.size;
    if (same && Family::runs(row->config, demand)) return text;
  }
  return {};
}

TEST(Properties, EveryShippedRowIsReachableFromARealCall) {
  const std::vector<std::string> problems = reference_problems();
  EXPECT_GE(problems.size(), 50u);
  for (const lookup_record& line : parse_table(shipped_lookup()).records) {
    std::string reached;
    families::for_each([&](auto one) {
      using family = typename decltype(one)::type;
      if (line.family == family::name) reached = problem_of_line<family>(line, problems);
    });
    EXPECT_NE(reached, "") << "no call asks for: " << line_of(line);
  }
}

TEST(ReferenceProblems, LeadToALineOfTheirKeyAndToNoOther) {
  families::for_each([](auto one) {
    using family = typename decltype(one)::type;
    for (const std::string& text : reference_problems()) {
      if (!serves<family>(text)) continue;
      const auto problem = family::parse(text);
      ASSERT_TRUE(problem) << text << ": " << problem.message();
      const auto demand = family::demand_of(*problem);
      const key_text key = key_text_of<family>(demand, 2, device_kind::cpu);
      lookup_record line;
      line.family = family::name;
      line.identity = key.identity.view();
      line.size = key.size.view();
      for (const auto& row : family::registry()) {
        if (family::runs(row.config, demand)) line.row = row.name;
      }
      EXPECT_NE(problem_of_line<family>(line, {text}), "") << text;
      line.identity += " other=true";
      EXPECT_EQ(problem_of_line<family>(line, {text}), "") << text;
    }
  });
}

}  // namespace
