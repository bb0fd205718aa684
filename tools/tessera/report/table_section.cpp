// The table as it is: the lines of the lookup tables, every field, and the rows with their configs.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

void write_line(markup& page, const tuned_problem& problem) {
  const auto row = page.element("tr");
  {
    const auto cell = page.element("td", {{"class", "case"}, {"data-name", "key"}});
    page.leaf("span", {{"class", "case-name"}},
              fmt::format("{} {}", problem.family, problem.identity));
    page.leaf("span", {{"class", "case-name"}}, problem.size);
    page.leaf("small", problem.device_class);
  }
  {
    const auto cell = page.element("td", {{"class", "case"}, {"data-name", "row"}});
    {
      const auto chosen = page.element("code", {{"class", "case-name"}});
      page.breakable(problem.row);
    }
    const auto standard = page.element("code", {{"class", "row-name"}});
    page.text("default: ");
    page.breakable(problem.default_row);
  }
  number_cell(page, "median", problem.us, time_text(problem.us.value_or(0)));
  number_cell(page, "spread", problem.spread_us, time_text(problem.spread_us.value_or(0)));
  number_cell(page, "default", problem.default_us, time_text(problem.default_us.value_or(0)));
  const auto cell = page.element("td", {{"class", "case"}, {"data-name", "evidence"}});
  std::string text;
  for (const auto& [name, value] : problem.details) {
    if (value.empty()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, value);
  }
  page.leaf("small", text);
}

void write_lookup(markup& page, const input& from) {
  if (from.table.empty()) {
    return nothing_given(page, "No lookup table was given.",
                         "tessera table dump, or add $TESSERA_TABLE_DIR/lookup.txt");
  }
  page.leaf("p", fmt::format("{} of measured choices, in the order of the files. Of two lines with "
                             "the same key the later one holds.",
                             counted(from.table.size(), "line")));
  const table_scope table(page, "Lines of the lookup tables",
                          {{"key"},
                           {"row and default"},
                           {"median", true},
                           {"spread", true},
                           {"default", true},
                           {"evidence"}},
                          from.table.size());
  for (const tuned_problem& problem : from.table) write_line(page, problem);
}

/// Rows of one family share the members of their configs, which are the columns.
void write_family(markup& page, const std::string& family,
                  const std::vector<const known_row*>& rows) {
  std::vector<std::string> members;
  for (const auto& [name, value] : rows.front()->config) members.push_back(name);
  const auto details = page.element("details");
  page.leaf("summary", fmt::format("{}: {} of this build with their configs", family,
                                   counted(rows.size(), "row")));
  std::vector<heading> headings{{"row"}};
  for (const std::string& member : members) headings.push_back({member});
  const table_scope table(page, fmt::format("Rows of {}", family), headings, rows.size());
  for (const known_row* known : rows) {
    const auto row = page.element("tr");
    code_cell(page, "row", known->name);
    for (const auto& [name, value] : known->config) text_cell(page, name, value);
  }
}

}  // namespace

void table_section(markup& page, const input& from) {
  const auto whole = section(page, "table", "The table as it is");
  write_lookup(page, from);
  std::map<std::string, std::vector<const known_row*>> families;
  for (const auto& [name, row] : from.rows) {
    if (row.built) families[row.family].push_back(&row);
  }
  for (const auto& [family, rows] : families) write_family(page, family, rows);
}

}  // namespace tessera::tool::report
