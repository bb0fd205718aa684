// Tables for people: aligned columns under one heading line. A column marked `foldable` moves to a
// line of its own below the row when the terminal is too narrow for the table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "terminal.hpp"

namespace tessera::tool {

enum class side { left, right };

struct column {
  std::string heading;
  side align = side::left;
  bool foldable = false;
};

struct cell {
  cell(std::string value, style how = style::plain)  // NOLINT(google-explicit-constructor)
      : text(std::move(value)), look(how) {}
  std::string text;
  style look;
};

class table {
 public:
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  /// One cell per column.
  void add(std::vector<cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const noexcept { return rows_.empty(); }

  /// The whole table, lines ended by newlines. `width` 0: no limit.
  std::string text(std::size_t width) const;

 private:
  std::vector<column> columns_;
  std::vector<std::vector<cell>> rows_;
};

/// Characters of a UTF-8 text, which is what it takes on a terminal (no wide characters are used).
std::size_t display_width(std::string_view text);

}  // namespace tessera::tool
