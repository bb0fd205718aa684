#include "families.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include <tessera/runtime/operation.hpp>

#include "command.hpp"
#include "families/declared_call.hpp"
#include "families/forward_call.hpp"
#include "json.hpp"

namespace tessera::tool {

std::string op_list() {
  std::string list;
  for (const family* kind : all_families()) kind->append_ops(list);
  return list;
}

std::string op_paragraphs() {
  constexpr std::size_t width = 100;
  std::string text = "Operations:";
  for (const family* kind : all_families()) {
    std::string names;
    kind->append_ops(names);
    std::size_t column = width;
    for (std::size_t from = 0; from < names.size();) {
      const std::size_t comma = std::min(names.find(", ", from), names.size());
      const std::string_view name = std::string_view(names).substr(from, comma - from);
      const bool fits = column + name.size() + 2 <= width;
      text += fits ? " " : column == width ? "\n  " : "\n    ";
      column = fits ? column + 1 : from == 0 ? 2 : 4;
      text.append(name).append(comma < names.size() ? "," : "");
      column += name.size() + 1;
      from = comma + 2;
    }
  }
  return text;
}

std::size_t op_count() {
  std::size_t count = 0;
  for (const family* kind : all_families()) count += kind->ops().size();
  return count;
}

namespace {

/// Letters to insert, remove or replace that make one word the other.
std::size_t edits_between(std::string_view word, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : word) {
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
  for (const family* kind : all_families()) {
    for (const std::string_view known : kind->ops()) {
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
  for (const family* kind : all_families()) {
    if (kind->serves(op)) return *kind;
  }
  const std::string_view near = nearest_op(op);
  const std::string others = near.empty()
                                 ? fmt::format("; the {} there are: {}", op_count(), op_list())
                                 : fmt::format(" ({} are), did you mean {}?", op_count(), near);
  throw failure(
      fmt::format("{}: \"{}\" is not an operation of this version{}", subject, op, others));
}

std::unique_ptr<file_call> open_call(const std::string& path, std::string_view op) {
  // A name that nobody serves is said before a file is looked for.
  const family* const of_op = op.empty() ? nullptr : &family_of(op, "OP");
  result<safetensors_file> file = safetensors_file::open(path);
  if (!file) throw failure(file.message());
  if (of_op) return of_op->open(path, *std::move(file), op);
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
  for (const boost::json::value& entry : *list) {
    if (!joined.empty()) joined += '+';
    joined += text_of(entry);
  }
  return joined;
}

namespace {

/// A family of this build as the commands see it.
class declared_family final : public family {
 public:
  declared_family(const tessera::family& kind, const family_words& words)
      : kind_(kind), words_(words) {
    for (const operation& op : kind.operations) ops_.push_back(op.name);
  }

  std::string_view name() const override { return kind_.name; }
  std::span<const std::string_view> ops() const override { return ops_; }
  void append_ops(std::string& list) const override {
    for (const operation& op : kind_.operations) text::append_names(list, op);
  }
  bool serves(std::string_view op) const override { return kind_.operation_named(op) != nullptr; }
  std::string remark(std::span<const listed_row> rows) const override {
    return words_.remark(rows);
  }

  std::vector<listed_row> rows() const override {
    std::vector<listed_row> all;
    for (const instance& row : kind_.rows()) {
      all.push_back({.name = row.name,
                     .target = row.target,
                     .config = words_.config_of(row.config),
                     .compile_seconds = static_cast<double>(row.compile_seconds),
                     .bytes = row.object_bytes,
                     .resources = row.resources,
                     .shared_bytes = is_cuda(row.target) ? words_.shared_bytes(row.config) : 0});
    }
    return all;
  }

  std::unique_ptr<file_call> open(std::string path, safetensors_file file,
                                  std::string_view op) const override {
    return open_declared(kind_, *kind_.operation_named(op), std::move(path), std::move(file));
  }

  std::string_view backward_of(std::string_view op) const override {
    const operation* const backward = gradient_of(*kind_.operation_named(op)).op;
    return backward != nullptr ? backward->name : std::string_view();
  }

  result<explanation> explain(std::string_view problem, const context& context,
                              const device_facts* device) const override {
    const tessera::family* kind = nullptr;
    const result<owned_problem> parsed = parse_problem(problem, kind);
    if (!parsed) return parsed.failure();
    return explain_operation(*kind, parsed->view(), context, device);
  }

 private:
  const tessera::family& kind_;
  const family_words& words_;
  std::vector<std::string_view> ops_;
};

}  // namespace

std::span<const family* const> all_families() {
  static const auto all = [] {
    std::vector<const family*> list;
    for (const tessera::family* kind : tessera::families()) {
      const family_words* const words = words_of(kind->name);
      if (words != nullptr) list.push_back(new declared_family(*kind, *words));
    }
    return list;
  }();
  return all;
}

}  // namespace tessera::tool
