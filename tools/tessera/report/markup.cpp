#include "markup.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera::tool::report {
namespace {

constexpr std::array<std::string_view, 16> blocks{
    "head", "header", "main", "section", "figure", "svg", "table",   "thead",
    "tr",   "div",    "p",    "ul",      "dl",     "h2",  "details", "style"};

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

/// Bytes of the UTF-8 character that begins at `at`; 0 if none does.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t index) {
    return index < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[index]))
                               : 0u;
  };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  unsigned code = lead & (0xffu >> (length + 1));
  for (std::size_t next = 1; next < length; ++next) {
    if ((byte(at + next) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(at + next) & 0x3fu);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool no_character = code > 0x10ffff || (code & 0xfffeu) == 0xfffe || code < 0xa0;
  // Marks that change the direction of what follows would let a name rearrange the page.
  const bool direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return surrogate || overlong || no_character || direction ? 0 : length;
}

void append_escaped(std::string& to, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_at(text, at);
    const char first = text[at];
    const bool control =
        (static_cast<unsigned char>(first) < 0x20 && first != '\t' && first != '\n') ||
        first == 0x7f;
    if (length == 0 || control) {
      to += replacement;
    } else if (first == '&') {
      to += "&amp;";
    } else if (first == '<') {
      to += "&lt;";
    } else if (first == '>') {
      to += "&gt;";
    } else if (first == '"') {
      to += "&quot;";
    } else if (first == '\'') {
      to += "&#39;";
    } else {
      to += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  append_escaped(result, text);
  return result;
}

markup::scope::~scope() {
  if (target_ == nullptr) return;  // moved from
  target_->text_.append("</").append(name_).append(">");
  // Lines are for people who look at the source; inside a sentence a line break would be a space.
  if (std::find(blocks.begin(), blocks.end(), name_) != blocks.end()) target_->text_ += '\n';
}

void markup::open(std::string_view name, attributes with) {
  text_.append("<").append(name);
  for (const auto& [key, value] : with) {
    text_.append(" ").append(key).append("=\"");
    append_escaped(text_, value);
    text_ += '"';
  }
}

markup::scope markup::element(std::string_view name, attributes with) {
  open(name, with);
  text_ += '>';
  return {*this, name};
}

void markup::leaf(std::string_view name, attributes with, std::string_view text) {
  const scope leaf_scope = element(name, with);
  append_escaped(text_, text);
}

void markup::empty(std::string_view name, attributes with) {
  open(name, with);
  text_ += "/>";
}

void markup::text(std::string_view plain) {
  append_escaped(text_, plain);
}

void markup::breakable(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find_first_of("./,", begin), name.size() - 1) + 1;
    append_escaped(text_, name.substr(begin, end - begin));
    if (end < name.size()) text_ += "<wbr/>";
    begin = end;
  }
}

void markup::raw(std::string_view own) {
  text_ += own;
}

}  // namespace tessera::tool::report
