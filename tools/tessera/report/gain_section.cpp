// Tuned against default: every problem ranked by its gain, and the same as a table.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "chart.hpp"
#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

using ranked_problems = std::vector<const tuned_problem*>;

constexpr double gate = 1.05;  // a smaller gain does not replace the default

ranked_problems ranked(const input& from) {
  ranked_problems list;
  for (const tuned_problem& problem : from.problems) {
    if (problem.gain()) list.push_back(&problem);
  }
  std::stable_sort(list.begin(), list.end(), [](const tuned_problem* a, const tuned_problem* b) {
    return *a->gain() > *b->gain();
  });
  return list;
}

struct gain_range {
  double low = 1;
  double high = 1;
};

/// The gain with the chosen row's time one spread later and earlier.
gain_range range_of(const tuned_problem& problem) {
  const double spread = std::min(problem.spread_us.value_or(0) / *problem.us, 0.9);
  return {*problem.gain() / (1 + spread), *problem.gain() / (1 - spread)};
}

std::string name_of(const tuned_problem& problem) {
  if (!problem.problem.empty()) return problem.problem;
  return fmt::format("{} {} {}", problem.family, problem.identity, problem.size);
}

/// "gain_too_small" as people write it.
std::string words_of(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

void draw_marks(markup& page, const ranked_problems& list, const axis& x, const axis& y,
                double radius) {
  for (std::size_t at = 0; at < list.size(); ++at) {
    const tuned_problem& problem = *list[at];
    const double cx = x.at(static_cast<double>(at) + 0.5);
    const double gain = *problem.gain();
    const gain_range range = range_of(problem);
    const bool kept = problem.row == problem.default_row;
    const auto link = page.element("a", {{"href", fmt::format("#gain-{}", at + 1)},
                                         {"class", kept ? "point kept" : "point c3"}});
    page.leaf("title", fmt::format("{}. {}: {}, {}", at + 1, name_of(problem), gain_text(gain),
                                   problem.row));
    if (!kept) {
      draw_line(page, "stem", cx, y.at(std::max(range.low, y.low())), cx,
                y.at(std::min(range.high, y.high())));
    }
    page.empty("circle",
               {{"class", "reach"}, {"cx", px(cx)}, {"cy", px(y.at(gain))}, {"r", px(radius * 2)}});
    page.empty("path", {{"class", "mark"}, {"d", mark_path(kept ? 1 : 0, cx, y.at(gain), radius)}});
  }
}

std::string gain_tick(double value) {
  return fmt::format("{:.3g}×", value);
}

void draw_in(markup& page, const ranked_problems& list, const canvas& area) {
  double low = 1, high = gate;
  for (const tuned_problem* problem : list) {
    const gain_range range = range_of(*problem);
    low = std::min(low, range.low);
    high = std::max(high, range.high);
  }
  const double pad = (high - low) * 0.08;
  const axis x(spacing::linear, 0, static_cast<double>(list.size()), area.left, area.right);
  const axis y(spacing::linear, std::max(low - pad, 0.0), high + pad, area.bottom, area.top);
  const auto image = picture(page, area,
                             fmt::format("Gain of the tuned row over the default for "
                                         "{} problems, largest first",
                                         list.size()));
  draw_y_ticks(page, area, y, 7, gain_tick);
  draw_line(page, "axis", area.left, area.bottom, area.right, area.bottom);
  draw_line(page, "roof", area.left, y.at(1), area.right, y.at(1));
  draw_line(page, "roof memory", area.left, y.at(gate), area.right, y.at(gate));
  page.leaf("text",
            {{"class", "roof-name"},
             {"x", px(area.right - 4)},
             {"y", px(y.at(1) + 16)},
             {"text-anchor", "end"}},
            "default");
  page.leaf("text", {{"class", "roof-name"}, {"x", px(area.left + 6)}, {"y", px(y.at(gate) - 6)}},
            "least gain that is kept, 1.05×");
  page.leaf("text",
            {{"class", "axis-title"},
             {"x", px((area.left + area.right) / 2)},
             {"y", px(area.bottom + 24)},
             {"text-anchor", "middle"}},
            "problems, largest gain first");
  draw_marks(page, list, x, y, list.size() > 60 ? 3 : area.narrow() ? 4 : 5.5);
}

void write_facts(markup& page, const ranked_problems& list) {
  geometric_mean mean;
  std::size_t faster = 0;
  for (const tuned_problem* problem : list) {
    mean.add(*problem->gain(), problem->count);
    if (problem->row != problem->default_row) ++faster;
  }
  const tuned_problem& worst = *list.back();
  const auto paragraph = page.element("p");
  page.text(fmt::format("{} of {} got another row than the default. Geometric mean of all: ",
                        faster, counted(list.size(), "problem")));
  number(page, mean.value(), gain_text(mean.value()));
  page.text(". Largest gain: ");
  number(page, *list.front()->gain(), gain_text(*list.front()->gain()));
  page.text(". Worst case: ");
  number(page, *worst.gain(), gain_text(*worst.gain()));
  page.text(".");
}

/// The row that will run and, where it is another, the default.
void write_rows(markup& page, const tuned_problem& problem) {
  {
    const auto chosen = page.element("code", {{"class", "row-name"}});
    page.breakable(problem.row);
  }
  if (problem.row == problem.default_row || problem.default_row.empty()) return;
  const auto before = page.element("code", {{"class", "row-name"}});
  page.text("instead of ");
  page.breakable(problem.default_row);
}

void write_row(markup& page, const tuned_problem& problem, std::size_t place, double most) {
  const auto row = page.element("tr", {{"id", fmt::format("gain-{}", place)}});
  page.leaf("th", {{"scope", "row"}, {"class", "n"}, {"data-name", "#"}}, std::to_string(place));
  {
    const auto cell = page.element("td", {{"class", "case"}, {"data-name", "problem"}});
    page.leaf("span", {{"class", "case-name"}}, name_of(problem));
    write_rows(page, problem);
  }
  {
    const auto cell = page.element("td", {{"class", "n"}, {"data-name", "tuned"}});
    number(page, *problem.us, time_text(*problem.us));
    if (problem.spread_us) {
      const auto small = page.element("small");
      page.text("± ");
      number(page, *problem.spread_us, time_text(*problem.spread_us));
    }
  }
  number_cell(page, "default", problem.default_us, time_text(*problem.default_us));
  const auto cell = page.element("td", {{"class", "n share"}, {"data-name", "gain"}});
  number(page, *problem.gain(), gain_text(*problem.gain()));
  bar(page, (*problem.gain() - 1) / most, *problem.gain() < 1 ? "fill bad" : "fill good");
  if (problem.again) {
    const auto small = page.element("small");
    page.text("in the race ");
    number(page, *problem.raced_gain(), gain_text(*problem.raced_gain()));
  }
  if (!problem.reason.empty()) page.leaf("small", words_of(problem.reason));
}

/// Problems that have no gain to show, by name and reason.
void write_unmeasured(markup& page, const input& from) {
  const bool any = std::any_of(from.problems.begin(), from.problems.end(),
                               [](const tuned_problem& problem) { return !problem.gain(); });
  if (!any) return;
  const table_scope table(page, "Problems without both times",
                          {{"problem"}, {"decision"}, {"why"}});
  for (const tuned_problem& problem : from.problems) {
    if (problem.gain()) continue;
    const auto row = page.element("tr");
    text_cell(page, "problem", name_of(problem));
    text_cell(page, "decision", problem.decision);
    text_cell(page, "why",
              problem.reason.empty() && !problem.default_us ? "the default was not measured"
                                                            : words_of(problem.reason));
  }
}

}  // namespace

void gain_section(markup& page, const input& from) {
  const auto whole = section(page, "gain", "Tuned against default");
  if (from.problems.empty()) {
    return nothing_given(
        page, "No measured problem was given.",
        "tessera tune --json > tune.jsonl, then add tune.jsonl or the lookup table");
  }
  const ranked_problems list = ranked(from);
  if (!list.empty()) {
    write_facts(page, list);
    {
      const auto figure = page.element("figure");
      draw_in(page, list, wide_canvas(360));
      draw_in(page, list, narrow_canvas(300));
      page.leaf("figcaption",
                "A disc is a problem whose row changed, with the spread of its time "
                "as a stem; a square kept its default.");
    }
    const double most = std::max(*list.front()->gain() - 1, 0.05);
    const table_scope table(
        page, "Gain of every measured problem",
        {{"#", true}, {"problem and row"}, {"tuned", true}, {"default", true}, {"gain", true}},
        list.size());
    for (std::size_t at = 0; at < list.size(); ++at) write_row(page, *list[at], at + 1, most);
  }
  write_unmeasured(page, from);
}

}  // namespace tessera::tool::report
