// Events as JSON.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <tessera/runtime/event_lines.hpp>

namespace tessera {

namespace {

/// Length of the UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool beyond = (lead == 0xED && byte(1) >= 0xA0) || (lead == 0xF4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

[[gnu::cold]] void append_json(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto one = static_cast<unsigned char>(text.front());
    const std::size_t length = character_length(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (one == '"' || one == '\\') {
      (out += '\\') += text.front();
    } else if (one == '\n') {
      out += "\\n";
    } else if (one < 0x20 || one == 0x7f) {
      ((out += "\\u00") += digits[one >> 4]) += digits[one & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

}  // namespace

[[gnu::cold]] std::string json_of(const event& what) {
  std::string line = "{\"event\":";
  append_json(line, name_of(what.kind));
  append_json(line += ",\"op\":", what.op);
  append_json(line += ",\"row\":", what.row);
  append_json(line += ",\"message\":", what.message);
  return line += '}';
}

void event_line_writer::deliver(void* receiver, const event& what) noexcept {
  const auto* const to = static_cast<const event_line_writer*>(receiver);
  if (to->write_ != nullptr) to->write_(to->state_, json_of(what) + '\n');
}

}  // namespace tessera
