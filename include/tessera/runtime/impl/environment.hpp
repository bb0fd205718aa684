// Parsing of the environment variables.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/runtime/environment.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>

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

void read_rows(environment& all, std::string_view value) {
  while (!value.empty()) {
    const std::string_view request = value.substr(0, value.find(','));
    value.remove_prefix(std::min(request.size() + 1, value.size()));
    const std::size_t equals = request.find('=');
    const std::string_view op = request.substr(0, equals);
    if (equals == std::string_view::npos || equals + 1 == request.size() ||
        !enumerator_named<flash_op>(op)) {
      warn(all, "TESSERA_ROW", request, "<op>=<row> with op one of " + enumerator_list<flash_op>());
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

}  // namespace

environment read_environment(const char* (*lookup)(const char* name)) {
  environment all;
  const auto with = [&](const char* name, auto&& use) {
    const char* const value = lookup(name);
    if (value != nullptr && *value != '\0') use(std::string_view(value));
  };
  with("TESSERA_EXPLAIN", [&](std::string_view value) { read_explain(all, value); });
  with("TESSERA_CPU", [&](std::string_view value) { read_cpu(all, value); });
  with("TESSERA_ROW", [&](std::string_view value) { read_rows(all, value); });
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
