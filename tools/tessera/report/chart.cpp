#include "chart.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace tessera::tool::report {

canvas wide_canvas(double height) {
  return {.style = "wide",
          .width = 1080,
          .height = height,
          .left = 70,
          .right = 1064,
          .top = 16,
          .bottom = height - 56};
}

canvas narrow_canvas(double height) {
  return {.style = "narrow",
          .width = 360,
          .height = height,
          .left = 46,
          .right = 350,
          .top = 12,
          .bottom = height - 48};
}

std::string px(double value) {
  return fmt::format("{:.1f}", value);
}

axis::axis(spacing kind, double low, double high, double from, double to)
    : kind_(kind), low_(low), high_(high), from_(from), to_(to) {}

double axis::at(double value) const {
  const double share = kind_ == spacing::linear ? (value - low_) / (high_ - low_)
                                                : std::log(value / low_) / std::log(high_ / low_);
  return from_ + share * (to_ - from_);
}

std::vector<double> axis::logarithmic_ticks() const {
  const double decades = std::log10(high_ / low_);
  const std::vector<double> steps = decades <= 2.2   ? std::vector<double>{1, 2, 5}
                                    : decades <= 3.2 ? std::vector<double>{1, 3}
                                                     : std::vector<double>{1};
  std::vector<double> found;
  for (double decade = std::floor(std::log10(low_)); decade <= std::log10(high_); ++decade) {
    for (const double step : steps) {
      const double value = step * std::pow(10.0, decade);
      if (holds(value)) found.push_back(value);
    }
  }
  return found;
}

std::vector<double> axis::ticks(std::size_t most) const {
  std::vector<double> found;
  if (kind_ == spacing::logarithmic) {
    found = logarithmic_ticks();
  } else {
    const double rough = (high_ - low_) / static_cast<double>(std::max<std::size_t>(most, 1));
    const double decade = std::pow(10.0, std::floor(std::log10(rough)));
    double step = decade;
    for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
      step = factor * decade;
      if (step >= rough) break;
    }
    for (double value = std::ceil(low_ / step - 1e-9) * step; value <= high_ + step * 1e-9;
         value += step) {
      found.push_back(std::abs(value) < step * 1e-6 ? 0 : value);
    }
  }
  while (found.size() > most) {
    std::vector<double> fewer;
    for (std::size_t at = 0; at < found.size(); at += 2) fewer.push_back(found[at]);
    found = std::move(fewer);
  }
  return found;
}

std::string tick_text(double value) {
  return fmt::format("{:.4g}", value);
}

void draw_line(markup& page, std::string_view style, double x1, double y1, double x2, double y2) {
  page.empty("line",
             {{"class", style}, {"x1", px(x1)}, {"y1", px(y1)}, {"x2", px(x2)}, {"y2", px(y2)}});
}

void draw_y_ticks(markup& page, const canvas& area, const axis& y, std::size_t count,
                  std::string (*text_of)(double)) {
  for (const double value : y.ticks(count)) {
    draw_line(page, "grid", area.left, y.at(value), area.right, y.at(value));
    page.leaf("text",
              {{"class", "tick"},
               {"x", px(area.left - 7)},
               {"y", px(y.at(value) + 4)},
               {"text-anchor", "end"}},
              text_of(value));
  }
}

void draw_axes(markup& page, const canvas& area, const axis& x, const axis& y,
               std::string_view x_title, std::string_view y_title, std::string (*text_of)(double)) {
  for (const double value : x.ticks(area.narrow() ? 5 : 12)) {
    draw_line(page, "grid", x.at(value), area.top, x.at(value), area.bottom);
    page.leaf("text",
              {{"class", "tick"},
               {"x", px(x.at(value))},
               {"y", px(area.bottom + 18)},
               {"text-anchor", "middle"}},
              tick_text(value));
  }
  draw_y_ticks(page, area, y, 8, text_of);
  draw_line(page, "axis", area.left, area.bottom, area.right, area.bottom);
  draw_line(page, "axis", area.left, area.top, area.left, area.bottom);
  page.leaf("text",
            {{"class", "axis-title"},
             {"x", px((area.left + area.right) / 2)},
             {"y", px(area.height - 8)},
             {"text-anchor", "middle"}},
            x_title);
  const std::string middle = px((area.top + area.bottom) / 2);
  page.leaf("text",
            {{"class", "axis-title"},
             {"x", "12"},
             {"y", middle},
             {"text-anchor", "middle"},
             {"transform", fmt::format("rotate(-90 12 {})", middle)}},
            y_title);
}

markup::scope picture(markup& page, const canvas& area, std::string_view label) {
  return page.element("svg", {{"class", fmt::format("chart {}", area.style)},
                              {"viewBox", fmt::format("0 0 {} {}", area.width, area.height)},
                              {"xmlns", "http://www.w3.org/2000/svg"},
                              {"role", "group"},
                              {"aria-label", label}});
}

std::string mark_path(std::size_t kind, double x, double y, double radius) {
  const double r = radius;
  switch (kind % mark_kinds) {
    case 1:  // square
      return fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}z", x - r * .88, y - r * .88, r * 1.76,
                         r * 1.76, -r * 1.76);
    case 2:  // triangle
      return fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}z", x, y - r * 1.15, r * 1.1, r * 1.9,
                         -r * 2.2);
    case 3:  // diamond
      return fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}z", x,
                         y - r * 1.25, r * 1.25, r * 1.25, -r * 1.25, r * 1.25, -r * 1.25,
                         -r * 1.25);
    case 4:  // triangle, point down
      return fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}z", x, y + r * 1.15, r * 1.1, -r * 1.9,
                         -r * 2.2);
    case 5: {  // plus
      const double a = r * .45;
      const double b = r * 1.2 - a;
      return fmt::format(
          "M{0:.1f} {1:.1f}h{2:.1f}v{3:.1f}h{3:.1f}v{2:.1f}h{4:.1f}v{3:.1f}h{5:.1f}v{4:.1f}"
          "h{4:.1f}v{5:.1f}h{3:.1f}z",
          x - a, y - a - b, 2 * a, b, -b, -2 * a);
    }
    default:  // circle
      return fmt::format(
          "M{:.1f} {:.1f}a{:.1f} {:.1f} 0 1 0 {:.1f} 0a{:.1f} {:.1f} 0 1 0 {:.1f} 0z", x - r, y, r,
          r, 2 * r, r, r, -2 * r);
  }
}

}  // namespace tessera::tool::report
