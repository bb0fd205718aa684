// What every picture needs: axes that map values to pixels, their ticks, and the two sizes in which
// each picture is drawn, one for wide and one for narrow screens, so that its text stays readable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "markup.hpp"

namespace tessera::tool::report {

/// The area of a picture inside its margins, in pixels; y grows downwards.
struct canvas {
  std::string_view style;  ///< class of the picture: shown on wide or on narrow screens
  double width = 0;
  double height = 0;
  double left = 0;
  double right = 0;
  double top = 0;
  double bottom = 0;
  bool narrow() const noexcept { return width < 600; }
};

canvas wide_canvas(double height);
canvas narrow_canvas(double height);

/// A pixel coordinate: one digit after the point.
std::string px(double value);

enum class spacing { linear, logarithmic };

class axis {
 public:
  axis(spacing kind, double low, double high, double from, double to);

  double at(double value) const;
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  bool holds(double value) const noexcept { return value >= low_ && value <= high_; }

  /// Round values inside the axis, at most `most`.
  std::vector<double> ticks(std::size_t most) const;

 private:
  std::vector<double> logarithmic_ticks() const;

  spacing kind_;
  double low_;
  double high_;
  double from_;
  double to_;
};

/// A value of a tick: as few digits as tell the ticks apart.
std::string tick_text(double value);

/// Grid lines and tick texts of the vertical axis, about `count` of them.
void draw_y_ticks(markup& page, const canvas& area, const axis& y, std::size_t count,
                  std::string (*text_of)(double));

/// Grid lines, tick texts and titles of both axes.
void draw_axes(markup& page, const canvas& area, const axis& x, const axis& y,
               std::string_view x_title, std::string_view y_title,
               std::string (*text_of)(double) = tick_text);

/// A line of a class from point to point.
void draw_line(markup& page, std::string_view style, double x1, double y1, double x2, double y2);

/// Opens a picture whose title and description readers of the page hear.
[[nodiscard]] markup::scope picture(markup& page, const canvas& area, std::string_view label);

/// Outline of a mark centred on (x, y); `kind` picks among six shapes.
std::string mark_path(std::size_t kind, double x, double y, double radius);
inline constexpr std::size_t mark_kinds = 6;

/// Colours of the page's palette, used in turn.
inline constexpr std::size_t palette_size = 8;

}  // namespace tessera::tool::report
