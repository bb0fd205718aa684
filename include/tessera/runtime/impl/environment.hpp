// What the environment says: the variables, and the text form of overlays, which one of them has.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/overlay.hpp>

namespace tessera {

namespace {

void warn(environment& all, std::string_view variable, std::string_view value,
          std::string_view valid) {
  std::string sentence(variable);
  sentence.append(": '").append(value).append("' is not a value it takes, and is ignored; ");
  all.warnings.push_back(sentence.append("valid are ").append(valid));
}

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

void read_explain(environment& all, std::string_view value) {
  int level = 0;
  if (read_number(value, level) && level >= 0 && level <= 3) {
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

/// The operations of all families.
[[gnu::cold]] std::vector<std::string_view> all_ops() {
  std::vector<std::string_view> ops;
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) ops.push_back(op.name);
  }
  return ops;
}

/// "a, b, c".
std::string listed(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

void read_rows(environment& all, std::string_view value) {
  const std::vector<std::string_view> ops = all_ops();
  while (!value.empty()) {
    const std::string_view request = value.substr(0, value.find(','));
    value.remove_prefix(std::min(request.size() + 1, value.size()));
    const std::size_t equals = request.find('=');
    const std::string_view op = request.substr(0, equals);
    if (equals == std::string_view::npos || equals + 1 == request.size() ||
        std::find(ops.begin(), ops.end(), op) == ops.end()) {
      warn(all, "TESSERA_ROW", request, "<op>=<row> with op one of " + listed(ops));
      continue;
    }
    all.rows.push_back({std::string(op), std::string(request.substr(equals + 1))});
  }
}

/// OpenMP accepts a list, one number per nesting level; the first is ours.
void read_threads(environment& all, std::string_view value) {
  int threads = 0;
  if (read_number(value.substr(0, value.find(',')), threads) && threads > 0) {
    all.threads = threads;
  } else {
    warn(all, "OMP_NUM_THREADS", value, "positive numbers");
  }
}

/// Rules have an arrow; anything else names a file.
void read_rules(environment& all, std::string_view value) {
  const bool text = value.find("=>") != std::string_view::npos;
  const result<overlay> rules = text ? parse_overlay(value) : read_overlay(std::string(value));
  if (rules) {
    all.rules = *rules;
  } else {
    all.warnings.push_back("TESSERA_OVERLAY: is ignored; " + rules.message());
  }
}

}  // namespace

[[gnu::cold]] environment read_environment(const char* (*lookup)(const char* name)) {
  environment all;
  const auto with = [&](const char* name, auto&& use) {
    const char* const value = lookup(name);
    if (value != nullptr && *value != '\0') use(std::string_view(value));
  };
  with("TESSERA_EXPLAIN", [&](std::string_view value) { read_explain(all, value); });
  with("TESSERA_CPU", [&](std::string_view value) { read_cpu(all, value); });
  with("TESSERA_ROW", [&](std::string_view value) { read_rows(all, value); });
  with("TESSERA_OVERLAY", [&](std::string_view value) { read_rules(all, value); });
  with("TESSERA_TABLE_DIR", [&](std::string_view value) { all.table_directory = value; });
  with("TESSERA_RECORD", [&](std::string_view value) { all.record_file = value; });
  with("OMP_NUM_THREADS", [&](std::string_view value) { read_threads(all, value); });
  return all;
}

const environment& process_environment() {
  static const environment once =
      read_environment([](const char* name) -> const char* { return std::getenv(name); });
  return once;
}

namespace {

constexpr std::string_view overlay_blanks = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(overlay_blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(overlay_blanks) + 1 - begin);
}

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

bool read_end(std::string_view text, std::int64_t& number) {
  if (text.empty()) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

/// "field=value" or "field=low..high".
[[gnu::cold]] status read_test(std::string_view word, std::span<const std::string_view> fields,
                               field_test& test) {
  const std::size_t equals = word.find('=');
  test.field = word.substr(0, equals);
  if (equals == std::string_view::npos || equals + 1 == word.size()) {
    return {status_code::malformed,
            "'" + std::string(word) + "' is no condition, must be field=value or field=low..high"};
  }
  if (std::find(fields.begin(), fields.end(), test.field) == fields.end()) {
    return {status_code::malformed,
            "'" + test.field + "' is no field of the operation, the fields are " + listed(fields)};
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
    return {status_code::malformed,
            "'" + std::string(word) + "' is no range, must be low..high with whole numbers"};
  }
  return {};
}

/// One rule, without blanks around it.
[[gnu::cold]] status read_rule(std::string_view text, overlay_rule& rule) {
  const std::size_t colon = text.find(':');
  const std::size_t arrow = text.find("=>");
  if (colon == std::string_view::npos || arrow == std::string_view::npos || arrow < colon) {
    return {status_code::malformed,
            "'" + std::string(text) + "' is no rule, must be <op>: <field>=<value>... => <row>"};
  }
  rule.op = without_blanks(text.substr(0, colon));
  bool known = false;
  const std::vector<std::string_view> fields = fields_of_op(rule.op, known);
  if (!known) {
    return {status_code::malformed,
            "'" + rule.op + "' is no operation, must be * or one of " + listed(all_ops())};
  }
  std::string_view tests = text.substr(colon + 1, arrow - colon - 1);
  for (tests = without_blanks(tests); !tests.empty(); tests = without_blanks(tests)) {
    const std::string_view word = tests.substr(0, tests.find_first_of(overlay_blanks));
    tests.remove_prefix(word.size());
    if (status done = read_test(word, fields, rule.tests.emplace_back()); !done) return done;
  }
  std::string_view row = text.substr(arrow + 2);
  if (row.starts_with('?')) {
    rule.on_ineligible = ineligible_override::fall_through;
    row.remove_prefix(1);
  }
  rule.row = without_blanks(row);
  if (!rule.row.empty() && rule.row.find_first_of(overlay_blanks) == std::string::npos) return {};
  return {status_code::malformed, "'" + rule.row + "' is no row, must be one name or pattern"};
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

[[gnu::cold]] result<overlay> parse_overlay(std::string_view text) {
  std::vector<overlay_rule> rules;
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    std::string_view rest = whole.substr(0, whole.find('#'));
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(';'));
      rest.remove_prefix(std::min(one.size() + 1, rest.size()));
      if (without_blanks(one).empty()) continue;
      if (status done = read_rule(without_blanks(one), rules.emplace_back()); !done) {
        return status{status_code::malformed,
                      "overlay: line " + std::to_string(line) + ": " + done.message()};
      }
    }
  }
  return overlay(std::move(rules));
}

[[gnu::cold]] result<overlay> read_overlay(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return status{status_code::io, path + ": cannot be read: " +
                                       std::error_code(errno, std::generic_category()).message()};
  }
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most) {
    return status{status_code::malformed, path + ": has more than the " + std::to_string(most) +
                                              " bytes that rules may have"};
  }
  result<overlay> rules = parse_overlay(text);
  if (!rules) return status{rules.code(), path + ": " + rules.message()};
  return rules;
}

[[gnu::cold]] overlay overlay_of(std::span<const lookup_record> records) {
  std::vector<overlay_rule> rules;
  for (const lookup_record& one : records) {
    rules.push_back({.op = one.family,
                     .identity = one.identity,
                     .size = one.size,
                     .row = one.row,
                     .on_ineligible = ineligible_override::fall_through});
  }
  return overlay(std::move(rules));
}

}  // namespace tessera
