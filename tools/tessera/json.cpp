#include "json.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/error.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <fmt/format.h>

#include "failure.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;
using error_code = boost::system::error_code;

constexpr std::size_t max_depth = 32;

/// Events of a parser that keep the keys of each open object, to find one that comes twice.
struct key_watcher {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  std::vector<std::set<std::string>> open;
  std::string partial;
  std::string repeated;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t, error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    open.pop_back();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, error_code&) {
    partial.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, error_code&) {
    partial.append(part.data(), part.size());
    if (!open.back().insert(partial).second && repeated.empty()) repeated = partial;
    partial.clear();
    return true;
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, error_code&) { return true; }
  bool on_double(double, json::string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }
};

std::string key_that_comes_twice(std::string_view text) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::basic_parser<key_watcher> parser(options);
  error_code ignored;
  parser.write_some(false, text.data(), text.size(), ignored);
  return parser.handler().repeated;
}

std::string number_text(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

bool is_scalar(const json::value& value) {
  return !value.is_object() && !value.is_array();
}

/// How deep the text is indented; `one_line` breaks no line at all.
struct layout {
  std::size_t indent = 0;
  bool one_line = false;

  layout deeper() const { return {indent + 2, one_line}; }
};

void write(const json::value& value, layout place, std::string& text);

template <class Sequence, class WriteOne>
void write_members(const Sequence& members, std::string_view brackets, layout place,
                   std::string& text, const WriteOne& write_one) {
  text += brackets[0];
  bool first = true;
  for (const auto& member : members) {
    if (!first) text += place.one_line ? ", " : ",";
    if (!place.one_line) text.append(1, '\n').append(place.indent + 2, ' ');
    write_one(member);
    first = false;
  }
  if (!place.one_line && !first) text.append(1, '\n').append(place.indent, ' ');
  text += brackets[1];
}

void write(const json::value& value, layout place, std::string& text) {
  if (const json::object* object = value.if_object()) {
    write_members(*object, "{}", place, text, [&](const json::key_value_pair& member) {
      text += json::serialize(json::string_view(member.key()));
      text += ": ";
      write(member.value(), place.deeper(), text);
    });
  } else if (const json::array* array = value.if_array()) {
    bool scalars = true;
    for (const json::value& element : *array) scalars = scalars && is_scalar(element);
    const layout inner{place.indent, place.one_line || scalars};
    write_members(*array, "[]", inner, text,
                  [&](const json::value& element) { write(element, place.deeper(), text); });
  } else if (const double* number = value.if_double()) {
    text += number_text(*number);
  } else {
    text += json::serialize(value);
  }
}

}  // namespace

std::string file_text(const std::string& path, std::size_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw failure(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > limit) {
      throw failure(fmt::format("{}: has more than {} bytes, a file of its kind has at most {}",
                                path, limit, limit));
    }
  }
  if (file.bad()) throw failure(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return text;
}

json::value parse_json(std::string_view text, const std::string& subject) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::stream_parser parser({}, options);
  error_code error;
  const std::size_t consumed = parser.write_some(text.data(), text.size(), error);
  if (!error && consumed < text.size()) error = json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) {
    throw failure(fmt::format("{}: not JSON: {} at byte {} of {} (at most {} levels are read)",
                              subject, error.message(), consumed, text.size(), max_depth));
  }
  if (const std::string key = key_that_comes_twice(text); !key.empty()) {
    throw failure(
        fmt::format("{}: key \"{}\" comes 2 times in one object, must come once", subject, key));
  }
  return parser.release();
}

std::string json_text(const json::value& value) {
  std::string text;
  write(value, {}, text);
  return text;
}

std::string json_line(const json::value& value) {
  std::string text;
  write(value, {.one_line = true}, text);
  return text;
}

void print_json(const json::value& value) {
  print(json_text(value) + "\n");
}

}  // namespace tessera::tool
