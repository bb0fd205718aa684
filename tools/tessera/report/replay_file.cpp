#include "replay_file.hpp"

#include <algorithm>
#include <string_view>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "../json.hpp"
#include "fields.hpp"

namespace tessera::tool::report {
namespace {

namespace json = boost::json;

/// The object of that name; refuses anything else there.
fields part_of(const fields& whole, std::string_view name) {
  const json::value* found = whole.object().if_contains(json::string_view(name));
  if (found == nullptr || !found->is_object()) whole.refuse(name, "is missing, must be an object");
  return {found->get_object(), fmt::format("{}: {}", whole.subject(), name)};
}

double required_number(const fields& from, std::string_view name) {
  const std::optional<double> found = from.number(name);
  if (!found) from.refuse(name, "is missing, must be a number");
  return *found;
}

std::optional<double> scaled(std::optional<double> value, double factor) {
  return value ? std::optional(*value * factor) : std::nullopt;
}

replay_sums sums_of(const fields& from, std::string name) {
  const fields times = part_of(from, "milliseconds");
  return {.name = std::move(name),
          .steps = required_number(from, "steps"),
          .tokens = required_number(from, "tokens"),
          .tokens_per_second = required_number(from, "tokens_per_second"),
          .gflops = from.number("gflops_per_second"),
          .gbytes = from.number("gigabytes_per_second"),
          .of_read = scaled(from.number("percent_of_read"), 0.01),
          .p50_us = scaled(times.number("p50"), 1e3),
          .p99_us = scaled(times.number("p99"), 1e3),
          .max_us = scaled(times.number("max"), 1e3)};
}

/// The numbers of a column of the steps, of which there are `count` (0: any number).
std::vector<double> column_of(const fields& columns, std::string_view name, std::size_t count) {
  const json::array& list = columns.required_array(name);
  if (count != 0 && list.size() != count) {
    columns.refuse(name, fmt::format("has {} steps, clock has {}", list.size(), count));
  }
  std::vector<double> values;
  for (const json::value& element : list) {
    if (!element.is_number() || element.to_number<double>() < 0) {
      columns.refuse(fmt::format("{}[{}]", name, values.size()),
                     fmt::format("is {}, must be a number from 0", json_line(element)));
    }
    values.push_back(element.to_number<double>());
  }
  return values;
}

std::vector<replay_step> steps_of(const fields& columns) {
  const std::vector<double> clock = column_of(columns, "clock", 0);
  const auto column = [&](std::string_view name) { return column_of(columns, name, clock.size()); };
  const std::vector<double> tokens = column("tokens"), pages = column("pages_used"),
                            sequences = column("sequences"), generating = column("generating"),
                            times = column("milliseconds");
  std::vector<replay_step> steps;
  for (std::size_t n = 0; n < clock.size(); ++n) {
    steps.push_back({.clock = clock[n],
                     .tokens = tokens[n],
                     .pages = pages[n],
                     .us = times[n] * 1e3,
                     .reads_prompts = generating[n] < sequences[n]});
  }
  return steps;
}

void read_layers(const fields& whole, replay_run& run) {
  const json::array& layers = whole.required_array("layers");
  for (std::size_t n = 0; n < layers.size(); ++n) {
    const fields layer = whole.element(layers, n, "layers");
    const std::string kind = layer.required_text("kind");
    if (const std::string complaint = layer.text("complaint"); !complaint.empty()) {
      run.complaints.push_back(fmt::format("{}: {}", kind, complaint));
    }
    const bool is_checked = layer.number("checked_sequences").value_or(0) > 0;
    const json::array& rows = layer.required_array("rows");
    for (std::size_t at = 0; at < rows.size(); ++at) {
      const fields row = layer.element(rows, at, "rows");
      run.rows.push_back({.layers = fmt::format("{} x {}", required_number(layer, "layers"), kind),
                          .row = row.required_text("row"),
                          .tier = row.text("tier"),
                          .steps = required_number(row, "steps"),
                          .us = required_number(row, "seconds") * 1e6,
                          .error = is_checked ? layer.number("error") : std::nullopt,
                          .bound = is_checked ? layer.number("error_bound") : std::nullopt});
    }
  }
}

}  // namespace

bool is_replay(const json::object& document) {
  const json::value* const kind = document.if_contains("tessera");
  return kind != nullptr && kind->is_string() && kind->get_string() == "replay";
}

replay_run read_replay(const json::object& document, const std::string& path) {
  const fields whole(document, path);
  const fields model = part_of(whole, "model"), trace = part_of(whole, "trace");
  replay_run run;
  run.path = path;
  run.model = model.required_text("name");
  run.dtype = model.text("dtype");
  run.trace = trace.required_text("file");
  run.device = whole.text("device");
  if (const json::array* lines = trace.array("statement")) {
    for (const json::value& line : *lines) {
      if (line.is_string()) run.statement.emplace_back(std::string_view(line.get_string()));
    }
  }
  run.pages = std::max(required_number(trace, "pages"), 1.0);
  run.read_gbytes = whole.number("read_gigabytes_per_second");
  const fields steps = part_of(whole, "steps");
  for (const auto& [key, name] : {std::pair{"all", "all"},
                                  {"decode_only", "decode only"},
                                  {"with_prefill", "with prefill"}}) {
    run.sums.push_back(sums_of(part_of(steps, key), name));
  }
  read_layers(whole, run);
  run.steps = steps_of(part_of(whole, "columns"));
  const fields totals = part_of(whole, "totals");
  for (const json::key_value_pair& total : totals.object()) {
    if (!total.value().is_number()) totals.refuse(total.key(), "must be a number");
    run.totals.emplace_back(std::string_view(total.key()), total.value().to_number<double>());
  }
  run.checked_steps = whole.number("checked_steps").value_or(0);
  return run;
}

}  // namespace tessera::tool::report
