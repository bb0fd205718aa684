#include "numbers.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tessera::tool::report {

std::string exact(double value) {
  return fmt::format("{}", value);
}

std::string readable(double value) {
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  if (magnitude >= 15 || magnitude < -6) return fmt::format("{:.3e}", value);
  const int decimals = value == std::floor(value) ? 0 : std::clamp(3 - magnitude, 0, 9);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  const std::size_t whole = std::min(text.find('.'), text.size());
  const std::size_t first = text[0] == '-' ? 1 : 0;
  for (std::size_t at = whole; at > first + 3; at -= 3) text.insert(at - 3, "\u202f");
  return text;
}

std::string time_text(double microseconds) {
  if (microseconds < 1) return fmt::format("{:#.4g} ns", microseconds * 1e3);
  if (microseconds < 1e3) return fmt::format("{:#.4g} µs", microseconds);
  if (microseconds < 1e6) return fmt::format("{:#.4g} ms", microseconds * 1e-3);
  return fmt::format("{:#.4g} s", microseconds * 1e-6);
}

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.2f} MiB", bytes / (1024 * 1024));
}

std::string percent_text(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string gain_text(double gain) {
  return fmt::format("{:.{}f}×", gain, gain < 10 ? 2 : 1);
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void number(markup& page, double value, std::string_view text) {
  page.leaf("data", {{"value", exact(value)}}, text);
}

void number_cell(markup& page, std::string_view name, std::optional<double> value,
                 std::string_view text) {
  const auto cell = page.element("td", {{"class", "n"}, {"data-name", name}});
  if (value) {
    number(page, *value, text);
  } else {
    page.text("–");
  }
}

void geometric_mean::add(double value, double weight) {
  sum_ += std::log(value) * weight;
  weight_ += weight;
}

double geometric_mean::value() const {
  return weight_ > 0 ? std::exp(sum_ / weight_) : 1;
}

}  // namespace tessera::tool::report
