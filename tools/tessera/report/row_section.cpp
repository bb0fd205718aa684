// Rows: what each costs to compile and to carry, what it buys on the measured problems, and how
// fast a growing set of rows gets.
#include <algorithm>

#include <fmt/format.h>

#include "chart.hpp"
#include "numbers.hpp"
#include "sections.hpp"
#include "worth.hpp"

namespace tessera::tool::report {
namespace {

struct listed {
  const known_row* row = nullptr;
  row_worth worth;
};

struct totals {
  double seconds = 0;
  double bytes = 0;
  double most_seconds = 0;
  double most_bytes = 0;
  std::size_t uncosted = 0;

  void add(const row_cost& cost) {
    seconds += cost.seconds.value_or(0);
    bytes += cost.bytes.value_or(0);
    most_seconds = std::max(most_seconds, cost.seconds.value_or(0));
    most_bytes = std::max(most_bytes, cost.bytes.value_or(0));
    if (!cost.seconds && !cost.bytes) ++uncosted;
  }
};

std::string percent_tick(double value) {
  return fmt::format("{:.3g} %", value);
}

void draw_steps_in(markup& page, const std::vector<cover_step>& steps, const canvas& area) {
  const bool bytes = steps.back().bytes.has_value();
  const auto x_of = [&](std::size_t at) {
    return bytes ? *steps[at].bytes / 1024 : static_cast<double>(at + 1);
  };
  const auto first =
      static_cast<std::size_t>(std::count_if(steps.begin(), steps.end(),
                                             [](const cover_step& step) { return step.needed; }) -
                               1);
  const double high = std::max(steps[first].loss * 100, 1.0) * 1.1;
  const axis x(spacing::linear, 0, x_of(steps.size() - 1) * 1.04, area.left, area.right);
  const axis y(spacing::linear, 0, high, area.bottom, area.top);
  const auto image = picture(page, area,
                             fmt::format("Time lost against every row, by the rows that "
                                         "a build has: {} steps",
                                         steps.size()));
  draw_axes(page, area, x, y, bytes ? "KiB of rows" : "rows", "time lost", percent_tick);
  std::string path =
      fmt::format("M{} {}", px(x.at(x_of(first))), px(y.at(steps[first].loss * 100)));
  for (std::size_t at = first + 1; at < steps.size(); ++at) {
    path += fmt::format("H{}V{}", px(x.at(x_of(at))), px(y.at(steps[at].loss * 100)));
  }
  page.empty("path", {{"class", "steps c1"}, {"d", path}});
  for (std::size_t at = first; at < steps.size(); ++at) {
    const auto link =
        page.element("a", {{"href", fmt::format("#step-{}", at + 1)}, {"class", "point c1"}});
    page.leaf("title", fmt::format("{}: {} lost with {} rows", steps[at].row,
                                   percent_text(steps[at].loss), at + 1));
    const std::string cx = px(x.at(x_of(at))), cy = px(y.at(steps[at].loss * 100));
    page.empty("circle", {{"class", "reach"}, {"cx", cx}, {"cy", cy}, {"r", "11"}});
    page.empty("path", {{"class", "mark"},
                        {"d", mark_path(0, x.at(x_of(at)), y.at(steps[at].loss * 100), 5)}});
  }
}

void write_steps(markup& page, const std::vector<cover_step>& steps) {
  if (steps.empty()) return;
  page.leaf("h3", "What each further row buys");
  page.leaf("p",
            "A build that serves every measured problem needs the rows marked “needed”. Each "
            "further row is the one that saves most time of what is left, weighted by how often a "
            "problem is asked.");
  {
    const auto figure = page.element("figure");
    draw_steps_in(page, steps, wide_canvas(340));
    draw_steps_in(page, steps, narrow_canvas(300));
    page.leaf("figcaption", "Time lost against a build with every row, as rows are added.");
  }
  const table_scope table(page, "Rows in the order in which they would be added",
                          {{"#", true},
                           {"row"},
                           {"size so far", true},
                           {"compile time so far", true},
                           {"time of all problems", true},
                           {"lost", true}});
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const cover_step& step = steps[at];
    const auto row = page.element("tr", {{"id", fmt::format("step-{}", at + 1)}});
    page.leaf("th", {{"scope", "row"}, {"class", "n"}, {"data-name", "#"}}, std::to_string(at + 1));
    {
      const auto cell = page.element("td", {{"data-name", "row"}});
      const auto code = page.element("code");
      page.breakable(step.row);
      if (step.needed) page.leaf("span", {{"class", "badge"}}, "needed");
    }
    number_cell(page, "size so far", step.bytes, bytes_text(step.bytes.value_or(0)));
    number_cell(page, "compile time so far", step.seconds,
                fmt::format("{:.1f} s", step.seconds.value_or(0)));
    number_cell(page, "time of all problems", step.us, time_text(step.us));
    number_cell(page, "lost", step.loss, percent_text(step.loss));
  }
}

void write_cost(markup& page, std::string_view name, std::optional<double> value,
                const std::string& text, double most) {
  const auto cell = page.element("td", {{"class", "n share"}, {"data-name", name}});
  if (!value) return page.text("–");
  number(page, *value, text);
  bar(page, most > 0 ? *value / most : 0, "fill cost");
}

/// Columns that a table of rows has where there is something to show in them.
struct row_columns {
  bool registers = false;
  bool measured = false;
};

/// "164", "255 + 12 B local".
std::string registers_text(const row_cost& cost) {
  std::string text = fmt::format("{:.0f}", cost.registers.value_or(0));
  if (cost.local_bytes.value_or(0) > 0) text += fmt::format(" + {:.0f} B local", *cost.local_bytes);
  return text;
}

void write_row(markup& page, const listed& entry, const totals& all, const row_columns& shown) {
  const auto row = page.element("tr");
  {
    const auto cell = page.element("td", {{"data-name", "row"}});
    const auto code = page.element("code");
    page.breakable(entry.row->name);
    if (!entry.row->built) page.leaf("span", {{"class", "badge"}}, "not in this build");
  }
  const row_cost& cost = entry.row->cost;
  write_cost(page, "compile time", cost.seconds, fmt::format("{:.2f} s", cost.seconds.value_or(0)),
             all.most_seconds);
  write_cost(page, "size", cost.bytes, bytes_text(cost.bytes.value_or(0)), all.most_bytes);
  if (shown.registers) number_cell(page, "registers", cost.registers, registers_text(cost));
  number_cell(page, "bench cases", static_cast<double>(entry.worth.cases),
              std::to_string(entry.worth.cases));
  if (!shown.measured) return;
  number_cell(page, "fastest for", static_cast<double>(entry.worth.problems),
              std::to_string(entry.worth.problems));
  const bool compared = entry.worth.problems > entry.worth.alone;
  number_cell(page, "over next best", compared ? std::optional(entry.worth.gain) : std::nullopt,
              gain_text(entry.worth.gain));
  number_cell(page, "time saved", compared ? std::optional(entry.worth.saved_us) : std::nullopt,
              time_text(entry.worth.saved_us));
}

std::vector<heading> row_headings(const row_columns& shown) {
  std::vector<heading> all{{"row"}, {"compile time", true}, {"size", true}};
  if (shown.registers) all.push_back({"registers", true});
  all.push_back({"bench cases", true});
  if (shown.measured) {
    all.push_back({"fastest for", true});
    all.push_back({"over next best", true});
    all.push_back({"time saved", true});
  }
  return all;
}

/// Rows that something was measured on first, those that save most before others.
std::vector<listed> listed_rows(const input& from) {
  const std::map<std::string, row_worth> worth = worth_of_rows(from);
  std::vector<listed> list;
  for (const auto& [name, row] : from.rows) {
    const auto found = worth.find(name);
    list.push_back({&row, found == worth.end() ? row_worth{} : found->second});
  }
  std::stable_sort(list.begin(), list.end(), [](const listed& a, const listed& b) {
    const auto rank = [](const listed& entry) {
      return std::tuple(entry.worth.saved_us, entry.worth.problems, entry.worth.cases);
    };
    return rank(a) > rank(b);
  });
  return list;
}

bool used(const listed& entry) {
  return entry.worth.cases > 0 || entry.worth.problems > 0;
}

/// The columns for those rows of the list that were used, or were not.
row_columns columns_for(const std::vector<listed>& list, bool of_used, bool measured) {
  const bool registers = std::any_of(list.begin(), list.end(), [&](const listed& entry) {
    return used(entry) == of_used && entry.row->cost.registers.has_value();
  });
  return {.registers = registers, .measured = measured};
}

void write_rows(markup& page, const std::vector<listed>& list, const totals& all, bool measured) {
  const auto idle = static_cast<std::size_t>(
      std::count_if(list.begin(), list.end(), [](const listed& entry) { return !used(entry); }));
  if (idle < list.size()) {
    const row_columns shown = columns_for(list, true, measured);
    const table_scope table(page, "Rows that these files ran", row_headings(shown),
                            list.size() - idle);
    for (const listed& entry : list) {
      if (used(entry)) write_row(page, entry, all, shown);
    }
  }
  if (idle == 0) return;
  totals unused;
  for (const listed& entry : list) {
    if (!used(entry)) unused.add(entry.row->cost);
  }
  const auto details = page.element("details");
  page.leaf("summary", fmt::format("{} that nothing in these files ran: {:.1f} s, {}",
                                   counted(idle, "row"), unused.seconds, bytes_text(unused.bytes)));
  const row_columns shown = columns_for(list, false, false);
  const table_scope table(page, "Rows that nothing in these files ran", row_headings(shown), idle);
  for (const listed& entry : list) {
    if (!used(entry)) write_row(page, entry, all, shown);
  }
}

}  // namespace

void row_section(markup& page, const input& from) {
  const auto whole = section(page, "rows", "What rows cost and what they buy");
  write_steps(page, cover_steps(from));
  if (from.rows.empty()) {
    return nothing_given(page, "No row is known.",
                         "tools/measure-cost --write, then add generated/cost/*.txt");
  }
  page.leaf("h3", "Every row");
  const std::vector<listed> list = listed_rows(from);
  totals all;
  for (const listed& entry : list) all.add(entry.row->cost);
  {
    const auto paragraph = page.element("p");
    page.text(fmt::format("{}: ", counted(list.size(), "row")));
    number(page, all.seconds, fmt::format("{:.1f} s", all.seconds));
    page.text(" to compile on one core, ");
    number(page, all.bytes, bytes_text(all.bytes));
    page.text(" of code and constants.");
    if (all.uncosted > 0) {
      page.text(fmt::format(" {} of them were never costed.", all.uncosted));
    }
  }
  write_rows(page, list, all, !from.problems.empty());
}

}  // namespace tessera::tool::report
