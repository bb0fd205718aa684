// Numbers as the page shows them: few digits for the eye, every digit for the machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "markup.hpp"

namespace tessera::tool::report {

/// The fewest digits that read back as the same number.
std::string exact(double value);

/// About four significant digits, of whole numbers all, thousands apart by narrow spaces:
/// "0.2911", "16", "44 972".
std::string readable(double value);

/// "291.1 µs", "2.219 ms", "1.30 s".
std::string time_text(double microseconds);

/// "812 B", "26.5 KiB", "3.1 MiB".
std::string bytes_text(double bytes);

/// "42.5 %".
std::string percent_text(double share);

/// "1.13×".
std::string gain_text(double gain);

/// "1 case", "24 cases".
std::string counted(std::size_t count, std::string_view what);

/// A number in a page: readable text whose element carries the exact value.
void number(markup& page, double value, std::string_view text);

/// A table cell with a number, or with a dash if there is none. Carries the exact value for readers
/// and for sorting. `name` is the column, which narrow screens show beside the value.
void number_cell(markup& page, std::string_view name, std::optional<double> value,
                 std::string_view text);

/// The geometric mean; 1 of nothing.
class geometric_mean {
 public:
  void add(double value, double weight = 1);
  double value() const;
  double weight() const noexcept { return weight_; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace tessera::tool::report
