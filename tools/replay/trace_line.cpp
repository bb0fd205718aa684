#include "trace_line.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <tessera/spec/status.hpp>

namespace tessera::replay {
namespace {

constexpr std::string_view space = " \t\r";

/// Bytes that no text has: what a refusal quotes goes to a terminal.
bool is_control(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return (code < 0x20 && space.find(byte) == std::string_view::npos) || code == 0x7f;
}

/// The whole text as a number.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number found{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return found;
}

}  // namespace

trace_line::trace_line(std::string_view text, const std::string& file, std::size_t number)
    : file_(&file), number_(number) {
  text = text.substr(0, text.find('#'));
  text = text.substr(0, text.find_last_not_of(space) + 1);
  const std::size_t blanks = std::min(text.find_first_not_of(space), text.size());
  text.remove_prefix(blanks);
  text_ = text;
  if (const auto control = std::ranges::find_if(text, is_control); control != text.end()) {
    refuse(fmt::format("byte {} of the line is {:#04x}, must be text",
                       blanks + static_cast<std::size_t>(control - text.begin()),
                       static_cast<unsigned char>(*control)));
  }
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(space));
    text.remove_prefix(word.size());
    text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      words_.push_back(word);
      continue;
    }
    const value found{word.substr(0, equals), word.substr(equals + 1)};
    if (std::ranges::find(values_, found.key, &value::key) != values_.end()) {
      refuse(fmt::format("{} is given 2 times", found.key));
    }
    values_.push_back(found);
  }
}

void trace_line::refuse(std::string_view fact) const {
  const std::string_view head = words_.empty() ? std::string_view() : words_.front();
  throw error(status(status_code::malformed, fmt::format("{}:{}: {}{}{}", *file_, number_, head,
                                                         head.empty() ? "" : ": ", fact)));
}

void trace_line::refuse_value(const value& found, std::string_view must) const {
  refuse(fmt::format("{} is \"{}\", must be {}", found.key, found.text, must));
}

std::string_view trace_line::word(std::size_t place, std::string_view what) const {
  if (place >= words_.size()) refuse(fmt::format("{} is missing", what));
  return words_[place];
}

trace_line::value& trace_line::needed(std::string_view key) {
  const auto found = std::ranges::find(values_, key, &value::key);
  if (found == values_.end()) refuse(fmt::format("{} is missing", key));
  found->used = true;
  return *found;
}

std::int64_t trace_line::whole(std::string_view key, std::int64_t least, std::int64_t most) {
  const value& found = needed(key);
  const auto number = number_in<std::int64_t>(found.text);
  if (!number || *number < least || *number > most) {
    refuse_value(found, fmt::format("a whole number from {} to {}", least, most));
  }
  return *number;
}

double trace_line::real(std::string_view key, double least, double most) {
  const value& found = needed(key);
  const auto number = number_in<double>(found.text);
  if (!number || !(*number >= least) || !(*number <= most)) {
    refuse_value(found, fmt::format("a number from {:g} to {:g}", least, most));
  }
  return *number;
}

std::int64_t trace_line::whole_or(std::string_view key, std::int64_t otherwise, std::int64_t least,
                                  std::int64_t most) {
  const bool given = std::ranges::find(values_, key, &value::key) != values_.end();
  return given ? whole(key, least, most) : otherwise;
}

std::optional<std::string_view> trace_line::text_of(std::string_view key) {
  const auto found = std::ranges::find(values_, key, &value::key);
  if (found == values_.end()) return std::nullopt;
  found->used = true;
  return found->text;
}

void trace_line::end(std::size_t words) const {
  if (words_.size() > words) refuse(fmt::format("\"{}\" means nothing here", words_[words]));
  const auto other = std::ranges::find(values_, false, &value::used);
  if (other == values_.end()) return;
  std::string known;
  for (const value& read : values_) {
    if (read.used) known += fmt::format("{}{}", known.empty() ? "" : ", ", read.key);
  }
  refuse(fmt::format("{}={} is no key of this line{}{}", other->key, other->text,
                     known.empty() ? "" : "; read were ", known));
}

}  // namespace tessera::replay
