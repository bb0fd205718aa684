// Replays: what a step took and how many pages were in use as time went by, and the rows that
// served.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "chart.hpp"
#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

/// Steps in a row that share a mark and a line of the table.
struct step_group {
  std::size_t first = 0, last = 0;
  double tokens = 0;
  double median_us = 0, max_us = 0;
  double pages = 0;  ///< most in use
  bool reads_prompts = false;

  std::string steps() const {
    return first == last ? fmt::format("{}", first + 1)
                         : fmt::format("{} to {}", first + 1, last + 1);
  }
};

constexpr std::size_t most_groups = 96;

std::vector<step_group> groups_of(const std::vector<replay_step>& steps) {
  const std::size_t size = (steps.size() + most_groups - 1) / most_groups;
  std::vector<step_group> groups;
  for (std::size_t first = 0; first < steps.size(); first += size) {
    step_group group{.first = first, .last = std::min(first + size, steps.size()) - 1};
    std::vector<double> times;
    for (std::size_t n = first; n <= group.last; ++n) {
      times.push_back(steps[n].us);
      group.tokens += steps[n].tokens;
      group.pages = std::max(group.pages, steps[n].pages);
      group.reads_prompts = group.reads_prompts || steps[n].reads_prompts;
    }
    std::ranges::sort(times);
    group.median_us = times[times.size() / 2];
    group.max_us = times.back();
    groups.push_back(group);
  }
  return groups;
}

/// A replay as it is drawn.
struct drawn_replay {
  const replay_run& run;
  std::vector<step_group> groups;
  std::size_t number = 0;  ///< counted over all replays

  std::string id(std::size_t group) const { return fmt::format("replay-{}-{}", number, group + 1); }
};

/// As `counted` where a file's number is one of things, else as it stands there.
std::string counted_number(double count, std::string_view what) {
  const bool is_count = count >= 0 && count < 0x1p53 && count == std::floor(count);
  return is_count ? counted(static_cast<std::size_t>(count), what)
                  : fmt::format("{} {}s", exact(count), what);
}

std::string millisecond_tick(double us) {
  return tick_text(us * 1e-3);
}

axis steps_axis(const drawn_replay& shown, const canvas& area) {
  return {spacing::linear, 0, static_cast<double>(shown.run.steps.size()), area.left, area.right};
}

/// Marks that link to the lines of the table. `bottom` of a group is where its stem begins, `top`
/// where it ends, `mark` where the mark is, all in pixels.
template <class Place>
void draw_groups(markup& page, const drawn_replay& shown, const axis& x, const canvas& area,
                 const Place& place) {
  for (std::size_t n = 0; n < shown.groups.size(); ++n) {
    const step_group& group = shown.groups[n];
    const double cx = x.at(static_cast<double>(group.first + group.last + 1) / 2);
    const auto [bottom, top, mark] = place(group);
    const auto link = page.element("a", {{"href", "#" + shown.id(n)},
                                         {"class", group.reads_prompts ? "point c2" : "point c1"}});
    page.leaf("title",
              fmt::format("Step {}: {}, median {}, longest {}, {} in use", group.steps(),
                          counted_number(group.tokens, "token"), time_text(group.median_us),
                          time_text(group.max_us), counted_number(group.pages, "page")));
    draw_line(page, "stem", cx, bottom, cx, top);
    const double radius = area.narrow() ? 2.5 : 4;
    page.empty("circle",
               {{"class", "reach"}, {"cx", px(cx)}, {"cy", px(mark)}, {"r", px(radius * 2)}});
    page.empty("path", {{"class", "mark"},
                        {"d", mark_path(group.reads_prompts ? 1 : 0, cx, mark, radius)}});
  }
}

void draw_times(markup& page, const drawn_replay& shown, const canvas& area) {
  double low = shown.groups.front().median_us, high = low;
  for (const step_group& group : shown.groups) {
    low = std::min(low, group.median_us);
    high = std::max(high, group.max_us);
  }
  high = std::max(high, 1e-3);
  low = std::max(low, high * 1e-6);
  const axis x = steps_axis(shown, area);
  const axis y(spacing::logarithmic, low / 1.3, high * 1.3, area.bottom, area.top);
  const auto image = picture(page, area, fmt::format("Time of {} steps", shown.run.steps.size()));
  draw_axes(page, area, x, y, "step", "milliseconds a step", millisecond_tick);
  draw_groups(page, shown, x, area, [&](const step_group& group) {
    const double median = y.at(std::max(group.median_us, y.low()));
    return std::array{median, y.at(std::max(group.max_us, y.low())), median};
  });
}

void draw_pages(markup& page, const drawn_replay& shown, const canvas& area) {
  const axis x = steps_axis(shown, area);
  const axis y(spacing::linear, 0, shown.run.pages * 1.06, area.bottom, area.top);
  const auto image =
      picture(page, area, fmt::format("Pages in use over {} steps", shown.run.steps.size()));
  draw_axes(page, area, x, y, "step", "pages in use");
  draw_line(page, "roof memory", area.left, y.at(shown.run.pages), area.right,
            y.at(shown.run.pages));
  page.leaf(
      "text",
      {{"class", "roof-name"}, {"x", px(area.left + 6)}, {"y", px(y.at(shown.run.pages) + 16)}},
      fmt::format("pool of {} pages", shown.run.pages));
  draw_groups(page, shown, x, area, [&](const step_group& group) {
    const double top = y.at(std::min(group.pages, shown.run.pages));
    return std::array{area.bottom, top, top};
  });
}

void write_facts(markup& page, const replay_run& run) {
  {
    const auto paragraph = page.element("p");
    page.text(
        fmt::format("{} ({}) served {} on {}. ", run.model, run.dtype, run.trace, run.device));
    page.text("Times are those of attention in all layers, one of each kind measured. ");
    const double checked = run.checked_steps;
    if (checked == 0) {
      page.text("No step was checked against the definition.");
    } else if (run.complaints.empty()) {
      page.text(fmt::format("{} {} checked against the definition, all right.",
                            counted_number(checked, "step"), checked == 1 ? "was" : "were"));
    }
  }
  for (const std::string& complaint : run.complaints) {
    page.leaf("p", {{"class", "failed"}}, complaint);
  }
  const auto list = page.element("dl", {{"class", "facts inline"}});
  const auto fact = [&](std::string name, double value, std::string_view unit) {
    std::ranges::replace(name, '_', ' ');
    const auto pair = page.element("div");
    page.leaf("dt", name);
    const auto text = page.element("dd");
    number(page, value, readable(value));
    page.text(unit);
  };
  if (run.read_gbytes) fact("memory read at most", *run.read_gbytes, " GB/s");
  for (const auto& [name, value] : run.totals) fact(name, value, "");
}

void write_sums(markup& page, const replay_run& run) {
  const table_scope table(page, fmt::format("Steps of {}", run.path),
                          {{"steps"},
                           {"count", true},
                           {"tokens", true},
                           {"tokens/s", true},
                           {"GFLOP/s", true},
                           {"GB/s", true},
                           {"of read", true},
                           {"p50", true},
                           {"p99", true},
                           {"longest", true}});
  for (const replay_sums& sums : run.sums) {
    const auto row = page.element("tr");
    text_cell(page, "steps", sums.name);
    number_cell(page, "count", sums.steps, readable(sums.steps));
    number_cell(page, "tokens", sums.tokens, readable(sums.tokens));
    number_cell(page, "tokens/s", sums.tokens_per_second, readable(sums.tokens_per_second));
    number_cell(page, "GFLOP/s", sums.gflops, readable(sums.gflops.value_or(0)));
    number_cell(page, "GB/s", sums.gbytes, readable(sums.gbytes.value_or(0)));
    number_cell(page, "of read", sums.of_read, percent_text(sums.of_read.value_or(0)));
    number_cell(page, "p50", sums.p50_us, time_text(sums.p50_us.value_or(0)));
    number_cell(page, "p99", sums.p99_us, time_text(sums.p99_us.value_or(0)));
    number_cell(page, "longest", sums.max_us, time_text(sums.max_us.value_or(0)));
  }
}

void write_rows(markup& page, const replay_run& run) {
  double most = 0;
  for (const replay_row& row : run.rows) most = std::max(most, row.us);
  const table_scope table(page, fmt::format("Rows that served {}", run.path),
                          {{"layers"},
                           {"row"},
                           {"tier"},
                           {"steps", true},
                           {"error", true},
                           {"bound", true},
                           {"time of a layer", true}});
  for (const replay_row& use : run.rows) {
    const auto row = page.element("tr");
    text_cell(page, "layers", use.layers);
    code_cell(page, "row", use.row);
    text_cell(page, "tier", use.tier);
    number_cell(page, "steps", use.steps, readable(use.steps));
    number_cell(page, "error", use.error, fmt::format("{:.1e}", use.error.value_or(0)));
    number_cell(page, "bound", use.bound, fmt::format("{:.1e}", use.bound.value_or(0)));
    const auto cell = page.element("td", {{"class", "n share"}, {"data-name", "time of a layer"}});
    number(page, use.us, time_text(use.us));
    bar(page, most > 0 ? use.us / most : 0);
  }
}

void write_groups(markup& page, const drawn_replay& shown) {
  const table_scope table(page, fmt::format("Steps of {}, one after the other", shown.run.path),
                          {{"step"},
                           {"tokens", true},
                           {"median time", true},
                           {"longest", true},
                           {"pages in use", true},
                           {"reads"}},
                          shown.groups.size());
  for (std::size_t n = 0; n < shown.groups.size(); ++n) {
    const step_group& group = shown.groups[n];
    const auto row = page.element("tr", {{"id", shown.id(n)}});
    text_cell(page, "step", group.steps());
    number_cell(page, "tokens", group.tokens, readable(group.tokens));
    number_cell(page, "median time", group.median_us, time_text(group.median_us));
    number_cell(page, "longest", group.max_us, time_text(group.max_us));
    number_cell(page, "pages in use", group.pages, readable(group.pages));
    text_cell(page, "reads", group.reads_prompts ? "prompts" : "");
  }
}

void write_pictures(markup& page, const drawn_replay& shown) {
  for (const auto draw : {&draw_times, &draw_pages}) {
    const auto figure = page.element("figure");
    draw(page, shown, wide_canvas(320));
    draw(page, shown, narrow_canvas(260));
    page.leaf(
        "figcaption",
        draw == &draw_times
            ? "A square is a step, or a few in a row, that reads prompts; a disc one that only "
              "generates. Marks are medians, stems reach to the longest."
            : "Pages that some sequence holds; the line is the whole pool.");
  }
}

}  // namespace

void replay_section(markup& page, const input& from) {
  const auto whole = section(page, "replay", "Replay");
  if (from.replays.empty()) {
    return nothing_given(page, "No replay was given.",
                         "tessera replay --model tools/models/qwen3-0.6b.json --trace "
                         "bench/shapes/traces/chat.txt --json > replay.json");
  }
  std::size_t number = 0;
  for (const replay_run& run : from.replays) {
    {
      const auto heading_of_run = page.element("h3");
      const auto name = page.element("code");
      page.breakable(run.path);
    }
    write_facts(page, run);
    write_sums(page, run);
    write_rows(page, run);
    if (run.steps.empty()) {
      page.leaf("p", {{"class", "nothing"}}, "The replay has no step.");
      continue;
    }
    const drawn_replay shown{run, groups_of(run.steps), ++number};
    write_pictures(page, shown);
    write_groups(page, shown);
    if (run.statement.empty()) continue;
    const auto details = page.element("details");
    page.leaf("summary", "What the trace states");
    const auto lines = page.element("ul", {{"class", "commands"}});
    for (const std::string& line : run.statement) {
      const auto item = page.element("li");
      page.leaf("code", line);
    }
  }
}

}  // namespace tessera::tool::report
