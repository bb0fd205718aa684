// The roofline: work per byte against rate of work, both logarithmic. A roof is a measured ceiling;
// the stem above a case ends where its own ceiling is, so that the gap is what is still to be had.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "chart.hpp"
#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

/// A case with its place.
struct placed {
  const bench_case* timing = nullptr;
  std::size_t number = 0;  ///< as in the table
  std::size_t group = 0;
  double x = 0;
  double y = 0;
};

struct box {
  double left, top, right, bottom;
  bool meets(const box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

struct plan {
  std::vector<placed> points;
  std::vector<std::string> groups;
  double low_x = 0, high_x = 0, low_y = 0, high_y = 0;
};

double fastest(const bench_run& run, limit kind) {
  double rate = 0;
  for (const ceiling& roof : run.ceilings) {
    if (roof.kind == kind) rate = std::max(rate, roof.rate);
  }
  return rate;
}

plan plan_of(const bench_run& run, std::size_t first) {
  plan plan;
  plan.low_x = plan.low_y = 1e300;
  for (std::size_t at = 0; at < run.cases.size(); ++at) {
    const bench_case& timing = run.cases[at];
    const std::optional<double> x = timing.intensity();
    if (!x) continue;
    const auto group = std::find(plan.groups.begin(), plan.groups.end(), timing.group);
    const auto index = static_cast<std::size_t>(group - plan.groups.begin());
    if (group == plan.groups.end()) plan.groups.push_back(timing.group);
    plan.points.push_back({&timing, first + at, index, *x, *timing.gflops});
    plan.low_x = std::min(plan.low_x, *x);
    plan.high_x = std::max(plan.high_x, *x);
    plan.low_y = std::min(plan.low_y, *timing.gflops);
    plan.high_y = std::max(plan.high_y, *timing.gflops);
  }
  if (plan.points.empty()) return plan;
  const double compute = fastest(run, limit::compute);
  const double memory = fastest(run, limit::memory);
  if (compute > 0) plan.high_y = std::max(plan.high_y, compute);
  // The ridge, where both limits meet, belongs into the picture.
  if (compute > 0 && memory > 0) {
    plan.low_x = std::min(plan.low_x, compute / memory * 0.5);
    plan.high_x = std::max(plan.high_x, compute / memory * 4);
  }
  if (memory > 0) plan.low_y = std::min(plan.low_y, plan.low_x * memory);
  plan.low_x /= 1.5;
  plan.high_x *= 1.5;
  plan.low_y /= 1.6;
  plan.high_y *= 1.7;
  return plan;
}

/// Where names of roofs already are, so that the next finds a free place.
using boxes = std::vector<box>;

bool is_free(const boxes& taken, const box& place) {
  return std::none_of(taken.begin(), taken.end(),
                      [&](const box& other) { return place.meets(other); });
}

/// "f32 FMA 234.3 GFLOP/s"; the unit is left to the axis where there is little room.
std::string roof_text(const ceiling& roof, bool narrow) {
  const std::string_view unit = roof.kind == limit::compute ? " GFLOP/s" : " GB/s";
  return fmt::format("{} {}{}", roof.name, readable(roof.rate), narrow ? "" : unit);
}

/// The roof that all threads reach is bold, what one core reaches is not.
std::string roof_style(const ceiling& roof) {
  return fmt::format("roof{}{}", roof.kind == limit::memory ? " memory" : "",
                     roof.of_one_core ? " minor" : "");
}

void draw_compute_roof(markup& page, const ceiling& roof, const axis& x, const axis& y,
                       double memory, bool narrow, boxes& taken) {
  const double ridge = memory > 0 ? std::clamp(roof.rate / memory, x.low(), x.high()) : x.low();
  const double height = y.at(roof.rate);
  draw_line(page, roof_style(roof), x.at(ridge), height, x.at(x.high()), height);
  const std::string text = roof_text(roof, narrow);
  const double width = 7.4 * static_cast<double>(text.size());
  double right = x.at(x.high()) - 4;
  while (right - width > x.at(ridge) &&
         !is_free(taken, {right - width, height - 20, right, height - 2})) {
    right -= 12;
  }
  if (right - width <= x.at(ridge)) return;
  taken.push_back({right - width, height - 20, right, height - 2});
  page.leaf(
      "text",
      {{"class", "roof-name"}, {"x", px(right)}, {"y", px(height - 6)}, {"text-anchor", "end"}},
      text);
}

/// On which side of a sloped roof there is room for its name.
enum class side { above, below, none };

/// Memory roofs run in parallel; a name needs a line's height to the next of them.
side side_of_name(const bench_run& run, const ceiling& roof, const axis& y, double slope) {
  constexpr double line_height = 19;
  double above = line_height, below = line_height;
  for (const ceiling& other : run.ceilings) {
    if (other.kind != limit::memory || &other == &roof) continue;
    const double gap = (y.at(roof.rate) - y.at(other.rate)) * std::cos(slope);
    if (gap >= 0) above = std::min(above, gap);
    if (gap <= 0) below = std::min(below, -gap);
  }
  if (above >= line_height) return side::above;
  return below >= line_height ? side::below : side::none;
}

/// `place`: how far along the roof its name stands, so that names of neighbours do not meet.
void draw_memory_roof(markup& page, const bench_run& run, const ceiling& roof, const axis& x,
                      const axis& y, bool narrow, double place) {
  const double compute = fastest(run, limit::compute);
  const double begin = std::max(x.low(), y.low() / roof.rate);
  double end = std::min(x.high(), y.high() / roof.rate);
  if (compute > 0) end = std::min(end, compute / roof.rate);
  if (end <= begin) return;
  const double x1 = x.at(begin), y1 = y.at(begin * roof.rate);
  const double x2 = x.at(end), y2 = y.at(end * roof.rate);
  draw_line(page, roof_style(roof), x1, y1, x2, y2);
  const double slope = std::atan2(y2 - y1, x2 - x1);
  const side where = side_of_name(run, roof, y, slope);
  if (where == side::none) return;
  const double off = where == side::above ? 6 : -15;
  const double at_x = x1 + (x2 - x1) * place + off * std::sin(slope);
  const double at_y = y1 + (y2 - y1) * place - off * std::cos(slope);
  const double angle = slope * 180 / std::numbers::pi;
  page.leaf("text",
            {{"class", "roof-name"},
             {"x", px(at_x)},
             {"y", px(at_y)},
             {"text-anchor", "middle"},
             {"transform", fmt::format("rotate({:.1f} {:.1f} {:.1f})", angle, at_x, at_y)}},
            roof_text(roof, narrow));
}

std::string sentence_of(const placed& point) {
  const bench_case& timing = *point.timing;
  std::string text = fmt::format("{}. {}: {} GFLOP/s at {} FLOP per byte", point.number,
                                 timing.name, readable(point.y), readable(point.x));
  if (timing.median_us) text += ", " + time_text(*timing.median_us);
  if (timing.of_ceiling)
    text += fmt::format(", {} of its ceiling", percent_text(*timing.of_ceiling));
  if (!timing.row.empty()) text += "; " + timing.row;
  return text;
}

/// Places for the number of a mark, nearest first.
std::array<box, 8> label_places(double x, double y, double width) {
  const double h = 12, w = width, r = 9;
  const auto at = [&](double left, double top) { return box{left, top, left + w, top + h}; };
  return {at(x + r, y - h / 2),         at(x - r - w, y - h / 2),
          at(x - w / 2, y - r - h),     at(x - w / 2, y + r),
          at(x + r - 2, y - r - 6),     at(x - r - w + 2, y - r - 6),
          at(x + r - 2, y + r - h + 6), at(x - r - w + 2, y + r - h + 6)};
}

void draw_points(markup& page, const plan& plan, const canvas& area, const axis& x, const axis& y,
                 boxes taken) {
  const double radius = area.narrow() ? 5 : 6;
  for (const placed& point : plan.points) {
    const double cx = x.at(point.x), cy = y.at(point.y);
    taken.push_back({cx - radius, cy - radius, cx + radius, cy + radius});
  }
  for (const placed& point : plan.points) {
    const double cx = x.at(point.x), cy = y.at(point.y);
    const auto link =
        page.element("a", {{"href", fmt::format("#case-{}", point.number)},
                           {"class", fmt::format("point c{}{}", point.group % palette_size + 1,
                                                 point.timing->disturbed ? " hollow" : "")}});
    page.leaf("title", sentence_of(point));
    if (point.timing->of_ceiling && *point.timing->of_ceiling > 0 &&
        *point.timing->of_ceiling < 1) {
      const double top = y.at(std::min(point.y / *point.timing->of_ceiling, y.high()));
      draw_line(page, "stem", cx, cy, cx, top);
      draw_line(page, "stem", cx - 3, top, cx + 3, top);
    }
    page.empty("circle",
               {{"class", "reach"}, {"cx", px(cx)}, {"cy", px(cy)}, {"r", px(radius * 2)}});
    page.empty("path", {{"class", "mark"}, {"d", mark_path(point.group, cx, cy, radius)}});
    const std::string number = std::to_string(point.number);
    for (const box& place : label_places(cx, cy, 7.0 * static_cast<double>(number.size()))) {
      const bool inside = place.left > area.left && place.right < area.right &&
                          place.top > area.top && place.bottom < area.bottom;
      if (!inside || !is_free(taken, place)) continue;
      page.leaf("text",
                {{"class", "mark-name"}, {"x", px(place.left)}, {"y", px(place.bottom - 2)}},
                number);
      taken.push_back(place);
      break;
    }
  }
}

void draw_in(markup& page, const bench_run& run, const plan& plan, const canvas& area) {
  const axis x(spacing::logarithmic, plan.low_x, plan.high_x, area.left, area.right);
  const axis y(spacing::logarithmic, plan.low_y, plan.high_y, area.bottom, area.top);
  const double compute = fastest(run, limit::compute);
  const double memory = fastest(run, limit::memory);
  const auto image = picture(page, area,
                             fmt::format("Roofline of {}: {} cases under {} measured ceilings",
                                         run.path, plan.points.size(), run.ceilings.size()));
  if (compute > 0 && memory > 0) {
    const double left = std::max(x.low(), y.low() / memory);
    const double ridge = std::clamp(compute / memory, x.low(), x.high());
    page.empty("path",
               {{"class", "under"},
                {"d", fmt::format("M{} {}L{} {}L{} {}L{} {}L{} {}z", px(x.at(x.low())),
                                  px(area.bottom), px(x.at(left)), px(y.at(left * memory)),
                                  px(x.at(ridge)), px(y.at(compute)), px(x.at(x.high())),
                                  px(y.at(compute)), px(x.at(x.high())), px(area.bottom))}});
  }
  draw_axes(page, area, x, y, "FLOP per byte", "GFLOP/s");
  boxes taken;
  double place = 0.3;
  for (const ceiling& roof : run.ceilings) {
    if (roof.kind == limit::compute) {
      draw_compute_roof(page, roof, x, y, memory, area.narrow(), taken);
    } else {
      draw_memory_roof(page, run, roof, x, y, area.narrow(), place);
      place += 0.2;
    }
  }
  draw_points(page, plan, area, x, y, std::move(taken));
}

void draw_legend(markup& page, const plan& plan) {
  const auto list = page.element("ul", {{"class", "legend"}});
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    const auto item = page.element("li");
    {
      const auto key =
          page.element("svg", {{"class", fmt::format("key c{}", group % palette_size + 1)},
                               {"viewBox", "0 0 16 16"},
                               {"aria-hidden", "true"}});
      page.empty("path", {{"class", "mark"}, {"d", mark_path(group, 8, 8, 6)}});
    }
    const auto of_group = std::count_if(plan.points.begin(), plan.points.end(),
                                        [&](const placed& point) { return point.group == group; });
    page.text(fmt::format("{} ({})", plan.groups[group], of_group));
  }
  if (std::any_of(plan.points.begin(), plan.points.end(),
                  [](const placed& point) { return point.timing->disturbed; })) {
    page.leaf("li", "hollow: disturbed by other programs while measured");
  }
}

}  // namespace

void draw_roofline(markup& page, const bench_run& run, std::size_t first) {
  const plan plan = plan_of(run, first);
  if (plan.points.empty()) return;
  const auto figure = page.element("figure");
  draw_legend(page, plan);
  draw_in(page, run, plan, wide_canvas(560));
  draw_in(page, run, plan, narrow_canvas(430));
  page.leaf("figcaption",
            "Each mark is a case, numbered as in the table below; higher is faster. The stem above "
            "a mark ends at the ceiling that holds the case. Sloped roofs are memory bandwidth, "
            "flat roofs arithmetic, all measured in the same run.");
}

}  // namespace tessera::tool::report
