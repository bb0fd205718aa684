#include "table.hpp"

#include <algorithm>

namespace tessera::tool {
namespace {

constexpr std::size_t gap = 2;

std::string padded(const cell& cell, side align, std::size_t width, bool last) {
  const std::size_t taken = display_width(cell.text);
  const std::string space(width > taken ? width - taken : 0, ' ');
  const std::string text = styled(cell.look, cell.text);
  if (align == side::right) return space + text;
  return last ? text : text + space;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
  }));
}

std::string table::text(std::size_t width) const {
  std::vector<std::size_t> widths;
  std::size_t total = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = display_width(columns_[c].heading);
    for (const auto& row : rows_) widest = std::max(widest, display_width(row[c].text));
    widths.push_back(widest);
    total += widest + gap;
  }
  const bool fold = width > 0 && total - gap > width;
  std::vector<std::size_t> inline_columns;
  std::vector<std::size_t> folded_columns;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    (fold && columns_[c].foldable ? folded_columns : inline_columns).push_back(c);
  }
  std::string text;
  const auto line = [&](auto cell_at) {
    for (const std::size_t c : inline_columns) {
      const bool last = c == inline_columns.back();
      text += padded(cell_at(c), columns_[c].align, widths[c], last);
      if (!last) text.append(gap, ' ');
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  };
  line([&](std::size_t c) { return cell(columns_[c].heading, style::bold); });
  for (const auto& row : rows_) {
    line([&](std::size_t c) { return row[c]; });
    for (const std::size_t c : folded_columns) {
      if (row[c].text.empty()) continue;
      text += styled(style::dim, "    " + columns_[c].heading + ": " + row[c].text) + '\n';
    }
  }
  return text;
}

}  // namespace tessera::tool
