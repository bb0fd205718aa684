// The table inside the library against the problems it was measured on: each of its lines answers a
// call that somebody can make, with a row that runs it.
#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/lookup/record.hpp>
#include <tessera/runtime/lookup/table.hpp>
#include <tessera/runtime/operation.hpp>
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

/// The demand of a problem of that family; nothing for those of others.
std::optional<demand> demand_in(const family& kind, std::string_view problem) {
  const family* of = nullptr;
  const result<owned_problem> read = parse_problem(problem, of);
  EXPECT_TRUE(read) << problem << ": " << read.message();
  if (!read || of != &kind) return std::nullopt;
  return demand_for(kind, read->view(), {});
}

/// The problem whose key a line has and which its row runs; empty if there is none.
std::string problem_of_line(const family& kind, const lookup_record& line,
                            const std::vector<std::string>& problems) {
  const auto rows = kind.rows();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const instance& each) { return each.name == line.row; });
  if (row == rows.end()) return {};
  for (const std::string& text : problems) {
    const std::optional<demand> asked = demand_in(kind, text);
    if (!asked) continue;
    const key_text key = key_text_of(kind, *asked, threads_of(line.size), device_kind::cpu);
    const bool same = key.identity.view() == line.identity && key.size.view() == line.size;
    if (same && kind.runs(row->config, *asked)) return text;
  }
  return {};
}

TEST(Properties, EveryShippedRowIsReachableFromARealCall) {
  const std::vector<std::string> problems = reference_problems();
  EXPECT_GE(problems.size(), 50u);
  for (const lookup_record& line : parse_table(shipped_lookup()).records) {
    std::string reached;
    for (const family* kind : families()) {
      if (line.family == kind->name) reached = problem_of_line(*kind, line, problems);
    }
    EXPECT_NE(reached, "") << "no call asks for: " << line_of(line);
  }
}

TEST(ReferenceProblems, LeadToALineOfTheirKeyAndToNoOther) {
  int reached = 0;
  const std::vector<std::string> problems = reference_problems();
  for (const family* kind : families()) {
    for (const std::string& text : problems) {
      const std::optional<demand> asked = demand_in(*kind, text);
      if (!asked) continue;
      ++reached;
      const key_text key = key_text_of(*kind, *asked, 2, device_kind::cpu);
      lookup_record line;
      line.family = kind->name;
      line.identity = key.identity.view();
      line.size = key.size.view();
      for (const instance& row : kind->rows()) {
        if (kind->runs(row.config, *asked)) line.row = row.name;
      }
      EXPECT_NE(problem_of_line(*kind, line, {text}), "") << text;
      line.identity += " other=true";
      EXPECT_EQ(problem_of_line(*kind, line, {text}), "") << text;
    }
  }
  EXPECT_EQ(reached, static_cast<int>(problems.size())) << "each is of one family";
}

}  // namespace
