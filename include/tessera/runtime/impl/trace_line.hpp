// Lines of traces, both ways. Needs nothing else of impl/: programs without the library include it
// alone.
#pragma once

#include <string>
#include <string_view>

#include <tessera/runtime/record.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace {
constexpr std::string_view count_mark = "# count=";
}  // namespace

[[gnu::cold]] result<trace_line> parse_trace_line(std::string_view line) {
  line = text::trimmed(line);
  if (line.empty() || line.front() == '#') return trace_line{};
  const std::size_t hash = line.find('#');
  trace_line read{std::string(text::trimmed(line.substr(0, hash))), 1};
  if (hash == std::string_view::npos) return read;
  const std::string_view mark = line.substr(hash);
  const bool counts =
      mark.starts_with(count_mark) && text::read_number(mark.substr(count_mark.size()), read.count);
  if (counts && read.count >= 1) return read;
  return refusal(status_code::malformed, {"trace: '", mark,
                                          "' after the problem, must be '# count=N' with N a whole "
                                          "number from 1"});
}

std::string line_of(const trace_line& line) {
  return sentence({line.problem, " ", count_mark, line.count});
}

}  // namespace tessera
