// Parsing of the environment variables.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
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

}  // namespace tessera
