#include "families.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "command.hpp"
#include "families/list.hpp"
#include "json.hpp"

namespace tessera::tool {

std::string op_list() {
  std::string list;
  for (const family* one : all_families()) {
    for (const std::string_view op : one->ops()) {
      if (!list.empty()) list += ", ";
      list += op;
    }
  }
  return list;
}

std::size_t op_count() {
  std::size_t count = 0;
  for (const family* one : all_families()) count += one->ops().size();
  return count;
}

namespace {

/// Letters to insert, remove or replace that make one word the other.
std::size_t edits_between(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : one) {
    std::size_t diagonal = row[0]++;
    for (std::size_t at = 0; at < other.size(); ++at) {
      const std::size_t replaced = diagonal + (letter == other[at] ? 0 : 1);
      diagonal = row[at + 1];
      row[at + 1] = std::min({replaced, diagonal + 1, row[at] + 1});
    }
  }
  return row.back();
}

/// The operation that was probably meant; empty if none is near.
std::string_view nearest_op(std::string_view op) {
  std::string_view nearest;
  std::size_t fewest = op.size() / 3 + 1;
  for (const family* one : all_families()) {
    for (const std::string_view known : one->ops()) {
      const std::size_t edits = edits_between(op, known);
      if (edits >= fewest) continue;
      fewest = edits;
      nearest = known;
    }
  }
  return nearest;
}

}  // namespace

const family& family_of(std::string_view op, const std::string& subject) {
  for (const family* one : all_families()) {
    const auto ops = one->ops();
    if (std::find(ops.begin(), ops.end(), op) != ops.end()) return *one;
  }
  const std::string_view near = nearest_op(op);
  throw failure(fmt::format(
      "{}: \"{}\" is not an operation of this version{}; the {} there are: {}", subject, op,
      near.empty() ? "" : fmt::format(", did you mean {}?", near), op_count(), op_list()));
}

std::unique_ptr<file_call> open_call(const std::string& path, std::string_view op) {
  result<safetensors_file> file = safetensors_file::open(path);
  if (!file) throw failure(file.message());
  if (!op.empty()) return family_of(op, "OP").open(path, *std::move(file), op);
  const auto named = file->metadata().find("op");
  if (named == file->metadata().end()) {
    throw failure(fmt::format("{}: has no metadata key \"op\" ({} keys), which names the operation",
                              path, file->metadata().size()));
  }
  const std::string name = named->second;
  return family_of(name, path + ": metadata key \"op\"").open(path, *std::move(file), name);
}

void set_option(file_call& call, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw failure(fmt::format("--option: \"{}\" is not NAME=VALUE", assignment));
  }
  const std::string_view text = assignment.substr(equals + 1);
  boost::json::value value;
  try {
    value = parse_json(text, "--option");
  } catch (const failure&) {
    value = boost::json::string_view(text);  // a bare word, as in causal_alignment=top_left
  }
  call.set_option(assignment.substr(0, equals), value, "--option");
}

std::string text_of(const boost::json::value& value) {
  if (const auto* text = value.if_string()) return std::string(*text);
  const auto* list = value.if_array();
  if (list == nullptr) return json_line(value);
  std::string joined;
  for (const boost::json::value& one : *list) {
    if (!joined.empty()) joined += '+';
    joined += text_of(one);
  }
  return joined;
}

std::span<const family* const> all_families() {
  static const auto all = [] {
    std::array<const family*, family_functions.size()> made{};
    std::transform(family_functions.begin(), family_functions.end(), made.begin(),
                   [](const auto function) { return &function(); });
    return made;
  }();
  return all;
}

}  // namespace tessera::tool
