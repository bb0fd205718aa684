// The lines of traces, both ways. Stands alone, for programs that read traces without the library.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include <tessera/runtime/record.hpp>

namespace tessera {

namespace {
constexpr std::string_view count_mark = "# count=";
}  // namespace

result<trace_line> parse_trace_line(std::string_view line) {
  constexpr std::string_view blanks = " \t\r\n";
  const auto trimmed = [&](std::string_view text) {
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) return std::string_view();
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
  };
  line = trimmed(line);
  if (line.empty() || line.front() == '#') return trace_line{};
  const std::size_t hash = line.find('#');
  trace_line read{std::string(trimmed(line.substr(0, hash))), 1};
  if (hash == std::string_view::npos) return read;
  const std::string_view mark = line.substr(hash);
  const std::string_view number =
      mark.starts_with(count_mark) ? mark.substr(count_mark.size()) : std::string_view();
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), read.count);
  if (error != std::errc{} || end != number.data() + number.size() || read.count < 1) {
    return status{status_code::malformed, "trace: '" + std::string(mark) +
                                              "' after the problem, must be '# count=N' with N a "
                                              "whole number from 1"};
  }
  return read;
}

std::string line_of(const trace_line& line) {
  return line.problem + " " + std::string(count_mark) + std::to_string(line.count);
}

}  // namespace tessera
