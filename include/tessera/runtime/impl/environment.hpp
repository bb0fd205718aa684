// What the environment says: the variables, and the text form of overlays, which one of them has.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/lookup/impl/descriptor.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace {

void warn(environment& all, std::string_view variable, std::string_view value,
          std::string_view valid) {
  all.warnings.push_back(sentence({variable, ": '", value, "' is not a value it takes, and is ",
                                   "ignored; valid are ", valid}));
}

void read_explain(environment& all, std::string_view value) {
  int level = 0;
  if (text::read_number(value, level) && level >= 0 && level <= 3) {
    all.explain = level;
  } else {
    warn(all, "TESSERA_EXPLAIN", value, "0, 1, 2, 3");
  }
}

void read_cpu(environment& all, std::string_view value) {
  std::string valid;
  for (const backend target : all_backends) {
    if (!is_cpu(target)) continue;
    std::string_view name = name_of(target);
    name.remove_prefix(std::string_view("cpu_").size());
    if (name == value) all.cpu = target;
    valid.append(valid.empty() ? "" : ", ").append(name);
  }
  if (!all.cpu) warn(all, "TESSERA_CPU", value, valid);
}

/// The operations of all families: "a, b (alias of b), c".
[[gnu::cold]] std::string listed_ops() {
  std::string list;
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) text::append_names(list, op);
  }
  return list;
}

/// "a, b, c".
std::string listed(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

void read_rows(environment& all, std::string_view value) {
  while (!value.empty()) {
    const std::string_view request = text::split_off(value, ',');
    const std::size_t equals = request.find('=');
    const operation* const op = operation_named(request.substr(0, equals)).op;
    if (equals == std::string_view::npos || equals + 1 == request.size() || op == nullptr) {
      warn(all, "TESSERA_ROW", request, sentence({"<op>=<row> with op one of ", listed_ops()}));
      continue;
    }
    all.rows.push_back({std::string(op->name), std::string(request.substr(equals + 1))});
  }
}

/// OpenMP accepts a list, one number per nesting level; the first is ours.
void read_threads(environment& all, std::string_view value) {
  int threads = 0;
  if (text::read_number(value.substr(0, value.find(',')), threads) && threads > 0) {
    all.threads = threads;
  } else {
    warn(all, "OMP_NUM_THREADS", value, "positive numbers");
  }
}

/// Rules have an arrow; anything else names a file.
void read_rules(environment& all, std::string_view value) {
  const bool is_text = value.find("=>") != std::string_view::npos;
  const result<overlay> rules = is_text ? parse_overlay(value) : read_overlay(std::string(value));
  if (rules) {
    all.rules = *rules;
  } else {
    all.warnings.push_back(sentence({"TESSERA_OVERLAY: is ignored; ", rules.message()}));
  }
}

}  // namespace

[[gnu::cold]] environment read_environment(const char* (*lookup)(const char* name)) {
  environment all;
  const auto value_of = [&](const char* name) -> std::string_view {
    const char* const value = lookup(name);
    return value != nullptr ? value : "";
  };
  using reader = void (*)(environment&, std::string_view);
  constexpr std::array<std::pair<const char*, reader>, 5> readers{{
      {"TESSERA_EXPLAIN", &read_explain},
      {"TESSERA_CPU", &read_cpu},
      {"TESSERA_ROW", &read_rows},
      {"TESSERA_OVERLAY", &read_rules},
      {"OMP_NUM_THREADS", &read_threads},
  }};
  for (const auto& [name, read] : readers) {
    if (const std::string_view value = value_of(name); !value.empty()) read(all, value);
  }
  all.table_directory = value_of("TESSERA_TABLE_DIR");
  all.record_file = value_of("TESSERA_RECORD");
  return all;
}

const environment& process_environment() {
  static const environment once =
      read_environment([](const char* name) -> const char* { return std::getenv(name); });
  return once;
}

namespace {

/// The fields that rules of an operation or family may name; `known` tells whether there is one.
[[gnu::cold]] std::vector<std::string_view> fields_of_op(std::string_view op, bool& known) {
  std::vector<std::string_view> fields;
  known = op == "*";
  for (const family* kind : families()) {
    if (op != "*" && op != kind->name && kind->operation_named(op) == nullptr) continue;
    known = true;
    for (const demand_field& field : kind->fields) fields.push_back(field.name);
  }
  return fields;
}

/// An end of a range; it may be missing.
bool read_end(std::string_view word, std::int64_t& number) {
  return word.empty() || text::read_number(word, number);
}

[[gnu::cold]] status malformed(sentence_parts parts) {
  return refusal(status_code::malformed, parts);
}

/// "field=value" or "field=low..high".
[[gnu::cold]] status read_test(std::string_view word, std::span<const std::string_view> fields,
                               field_test& test) {
  const std::size_t equals = word.find('=');
  test.field = word.substr(0, equals);
  if (equals == std::string_view::npos || equals + 1 == word.size()) {
    return malformed({"'", word, "' is no condition, must be field=value or field=low..high"});
  }
  if (std::find(fields.begin(), fields.end(), test.field) == fields.end()) {
    return malformed(
        {"'", test.field, "' is no field of the operation, the fields are ", listed(fields)});
  }
  test.word = word.substr(equals + 1);
  const std::size_t dots = test.word.find("..");
  const std::string_view value = test.word;
  const bool number = read_end(value, test.low);
  test.is_range = dots != std::string_view::npos || number;
  if (number) test.high = test.low;
  if (dots == std::string_view::npos) return {};
  if (!read_end(value.substr(0, dots), test.low) || !read_end(value.substr(dots + 2), test.high) ||
      test.low > test.high) {
    return malformed({"'", word, "' is no range, must be low..high with whole numbers"});
  }
  return {};
}

/// One rule, without blanks around it.
[[gnu::cold]] status read_rule(std::string_view line, overlay_rule& rule) {
  const std::size_t colon = line.find(':');
  const std::size_t arrow = line.find("=>");
  if (colon == std::string_view::npos || arrow == std::string_view::npos || arrow < colon) {
    return malformed({"'", line, "' is no rule, must be <op>: <field>=<value>... => <row>"});
  }
  rule.op = text::trimmed(line.substr(0, colon));
  bool known = false;
  const std::vector<std::string_view> fields = fields_of_op(rule.op, known);
  if (!known) {
    return malformed({"'", rule.op, "' is no operation, must be * or one of ", listed_ops()});
  }
  if (const operation* const op = operation_named(rule.op).op) rule.op = op->name;
  std::string_view tests = line.substr(colon + 1, arrow - colon - 1);
  for (auto word = text::next_word(tests); !word.empty(); word = text::next_word(tests)) {
    if (status done = read_test(word, fields, rule.tests.emplace_back()); !done) return done;
  }
  std::string_view row = line.substr(arrow + 2);
  if (row.starts_with('?')) {
    rule.on_ineligible = ineligible_override::fall_through;
    row.remove_prefix(1);
  }
  rule.row = text::trimmed(row);
  if (!rule.row.empty() && rule.row.find_first_of(text::blanks) == std::string::npos) return {};
  return malformed({"'", rule.row, "' is no row, must be one name or pattern"});
}

constinit std::atomic<const overlay*> overlay_of_process{nullptr};
constinit std::atomic<bool> overlay_is_set{false};

/// The rules over the process: those that a program set, else those of TESSERA_OVERLAY.
const overlay* overlay_of_environment() {
  if (overlay_is_set.load(std::memory_order_acquire)) {
    return overlay_of_process.load(std::memory_order_acquire);
  }
  const environment& process = process_environment();
  return process.rules ? &*process.rules : nullptr;
}

}  // namespace

overlay::overlay(std::vector<overlay_rule> rules)
    : rules_(std::make_shared<const std::vector<overlay_rule>>(std::move(rules))),
      number_(next_scope_number()) {}

const overlay* set_process_overlay(const overlay* rules) noexcept {
  const overlay* const before = overlay_of_process.exchange(rules, std::memory_order_acq_rel);
  overlay_is_set.store(true, std::memory_order_release);
  forget_selections();
  return before;
}

[[gnu::cold]] result<overlay> parse_overlay(std::string_view lines) {
  std::vector<overlay_rule> rules;
  int line = 0;
  while (!lines.empty()) {
    ++line;
    const std::string_view whole = text::split_off(lines, '\n');
    std::string_view rest = whole.substr(0, whole.find('#'));
    while (!rest.empty()) {
      const std::string_view rule = text::trimmed(text::split_off(rest, ';'));
      if (rule.empty()) continue;
      if (status done = read_rule(rule, rules.emplace_back()); !done) {
        return malformed({"overlay: line ", line, ": ", done.message()});
      }
    }
  }
  return overlay(std::move(rules));
}

[[gnu::cold]] result<overlay> read_overlay(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return files::system_failure(path, "cannot be read");
  }
  std::string content(most + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > most) {
    return malformed({path, ": has more than the ", most, " bytes that rules may have"});
  }
  result<overlay> rules = parse_overlay(content);
  if (!rules) return refusal(rules.code(), {path, ": ", rules.message()});
  return rules;
}

[[gnu::cold]] overlay overlay_of(std::span<const lookup_record> records) {
  std::vector<overlay_rule> rules;
  for (const lookup_record& record : records) {
    rules.push_back({.op = record.family,
                     .identity = record.identity,
                     .size = record.size,
                     .row = record.row,
                     .on_ineligible = ineligible_override::fall_through});
  }
  return overlay(std::move(rules));
}

}  // namespace tessera
