#include "table_listing.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

/// Records of one family and device class.
struct summary {
  std::int64_t rows = 0;
  std::vector<double> gains;  ///< of the rows whose default was measured
  std::string newest;

  void add(const lookup_record& record) {
    ++rows;
    if (const double gain = gain_of(record); gain > 0) gains.push_back(gain);
    newest = std::max(newest, record.date);
  }
  double best() const { return gains.empty() ? 0 : *std::max_element(gains.begin(), gains.end()); }
  double median() {
    if (gains.empty()) return 0;
    std::sort(gains.begin(), gains.end());
    const std::size_t half = gains.size() / 2;
    return gains.size() % 2 == 1 ? gains[half] : (gains[half - 1] + gains[half]) / 2;
  }
};

/// By place of the table, family and device class.
using summaries = std::map<std::tuple<std::string, std::string, std::string>, summary>;

summaries summarise(const std::vector<opened_table>& tables,
                    const std::function<std::string(const opened_table&)>& place) {
  summaries all;
  for (const opened_table& table : tables) {
    for (const lookup_record& record : table.table.records()) {
      all[{place(table), record.family, record.device_class}].add(record);
    }
  }
  return all;
}

std::string count_text(std::int64_t count) {
  return count == 0 ? "-" : std::to_string(count);
}

std::string gain_text(double gain) {
  return gain > 0 ? fmt::format("{:.2f}x", gain) : "-";
}

std::pair<std::string, style> state_of(const lookup_file_state& file) {
  switch (file.condition) {
    case lookup_file_condition::absent:
      return {"absent", style::dim};
    case lookup_file_condition::unreadable:
      return {"unreadable", style::bad};
    case lookup_file_condition::read:
      break;
  }
  if (file.damaged > 0) return {"damaged", style::bad};
  if (file.newer > 0) return {"newer schema", style::warning};
  return {"sound", style::good};
}

json::object json_of(const lookup_record& record) {
  return {{"family", record.family},
          {"semantic_version", record.semantic_version},
          {"code_version", record.code_version},
          {"device_class", record.device_class},
          {"identity", record.identity},
          {"size", record.size},
          {"row", record.row},
          {"median_us", record.median_us},
          {"spread_us", record.spread_us},
          {"default_row", record.default_row},
          {"default_us", record.default_us},
          {"runner_up", record.runner_up},
          {"runner_up_us", record.runner_up_us},
          {"samples", record.samples},
          {"mode", record.mode},
          {"source", record.source},
          {"environment", record.environment},
          {"date", record.date},
          {"gain", gain_of(record) > 0 ? json::value(gain_of(record)) : json::value(nullptr)},
          {"standing", json::string(name_of(standing_of(record)))}};
}

json::object json_of(const opened_table& table) {
  const lookup_file_state& file = table.file();
  json::array faults;
  for (const line_fault& fault : file.faults) {
    faults.push_back(json::object{{"line", fault.line}, {"reason", fault.reason}});
  }
  const standing_counts counts = count_standings(table.table);
  return {{"path", file.path},
          {"layer", table.layer},
          {"condition", json::string(name_of(file.condition))},
          {"problem", file.problem},
          {"bytes", file.bytes},
          {"lines", file.rows + file.damaged + file.newer},
          {"rows", table.table.records().size()},
          {"answers", counts.answers},
          {"hints", counts.hints},
          {"no_row", counts.no_row},
          {"foreign", counts.foreign},
          {"superseded", file.superseded},
          {"damaged", file.damaged},
          {"newer", file.newer},
          {"newest_schema", file.newest_schema},
          {"faults", std::move(faults)}};
}

void print_group(const lookup_record& first, std::vector<std::vector<cell>> rows) {
  print(styled(style::bold, first.family) + "  " + first.device_class + "\n" +
        styled(style::dim, first.identity) + "\n");
  table out({{"size"},
             {"ms", side::right},
             {"+-", side::right},
             {"default ms", side::right},
             {"gain", side::right},
             {"next best", side::right},
             {"date"},
             {"standing"},
             {"row", side::left, true}});
  for (auto& row : rows) out.add(std::move(row));
  print(out.text(terminal_width()) + "\n");
}

/// Four digits, never an exponent: "59.69", "0.1003".
std::string milliseconds_text(double microseconds) {
  if (microseconds <= 0) return "-";
  const double value = microseconds / 1000;
  const int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : value >= 1 ? 3 : 4;
  return fmt::format("{:.{}f}", value, digits);
}

/// How far the runner-up is behind; "tie" where it is not beyond the noise.
std::string runner_up_text(const lookup_record& record) {
  if (record.runner_up_us <= 0) return "-";
  if (record.runner_up_us - record.median_us <= record.spread_us) return "tie";
  return fmt::format("{:+.1f} %", 100 * (record.runner_up_us / record.median_us - 1));
}

std::vector<cell> dump_row(const lookup_record& record) {
  const double gain = gain_of(record);
  const standing is = standing_of(record);
  return {record.size,
          milliseconds_text(record.median_us),
          milliseconds_text(record.spread_us),
          milliseconds_text(record.default_us),
          {gain_text(gain), gain >= 1.05 ? style::good : style::plain},
          runner_up_text(record),
          {record.date.substr(0, 10), style::dim},
          {std::string(name_of(is)), is == standing::answer ? style::good : style::warning},
          record.row};
}

}  // namespace

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", value / (1 << 10));
  return fmt::format("{} B", bytes);
}

void print_stats(const std::vector<opened_table>& tables) {
  table files({{"layer"},
               {"state"},
               {"rows", side::right},
               {"answers", side::right},
               {"hints", side::right},
               {"no row", side::right},
               {"foreign", side::right},
               {"replaced", side::right},
               {"damaged", side::right},
               {"size", side::right},
               {"file", side::left, true}});
  for (const opened_table& table : tables) {
    const lookup_file_state& file = table.file();
    const standing_counts counts = count_standings(table.table);
    const auto [state, look] = state_of(file);
    files.add({table.layer,
               {state, look},
               count_text(static_cast<std::int64_t>(table.table.records().size())),
               count_text(counts.answers),
               count_text(counts.hints),
               count_text(counts.no_row),
               count_text(counts.foreign),
               count_text(file.superseded),
               {count_text(file.damaged), file.damaged > 0 ? style::bad : style::plain},
               file.condition == lookup_file_condition::read ? bytes_text(file.bytes) : "-",
               place_of(table)});
  }
  print(files.text(terminal_width()));
  summaries all = summarise(tables, place_of);
  if (!all.empty()) {
    table out({{"family"},
               {"rows", side::right},
               {"median gain", side::right},
               {"best", side::right},
               {"newest"},
               {"device class", side::left, true},
               {"file", side::left, true}});
    for (auto& [key, what] : all) {
      const auto& [path, family, device] = key;
      out.add({family, std::to_string(what.rows), gain_text(what.median()), gain_text(what.best()),
               what.newest, device, path});
    }
    print("\n" + out.text(terminal_width()));
  }
  for (const opened_table& table : tables) {
    const std::string warning = warning_of(table.file());
    if (!warning.empty()) print("\n" + styled(style::warning, warning) + "\n");
  }
}

void print_stats_json(const std::vector<opened_table>& tables) {
  json::array files;
  for (const opened_table& table : tables) files.push_back(json_of(table));
  json::array groups;
  const auto path_of = [](const opened_table& table) { return table.file().path; };
  for (auto& [key, what] : summarise(tables, path_of)) {
    const auto& [path, family, device] = key;
    summary copy = what;
    groups.push_back(json::object{{"path", path},
                                  {"family", family},
                                  {"device_class", device},
                                  {"rows", what.rows},
                                  {"median_gain", copy.median()},
                                  {"best_gain", what.best()},
                                  {"newest", what.newest}});
  }
  print_json(json::object{{"files", std::move(files)}, {"groups", std::move(groups)}});
}

void print_dump(const std::vector<opened_table>& tables) {
  for (const opened_table& table : tables) {
    const auto records = table.table.records();
    if (records.empty()) continue;
    const std::string count = counted(static_cast<std::int64_t>(records.size()), "row");
    print(styled(style::dim, title_of(table) + ": " + count) + "\n\n");
    std::vector<std::vector<cell>> rows;
    for (std::size_t at = 0; at < records.size(); ++at) {
      const lookup_record& record = records[at];
      rows.push_back(dump_row(record));
      const bool last = at + 1 == records.size() || records[at + 1].identity != record.identity ||
                        records[at + 1].device_class != record.device_class ||
                        records[at + 1].family != record.family;
      if (last) print_group(record, std::exchange(rows, {}));
    }
  }
}

void print_dump_json(const std::vector<opened_table>& tables) {
  json::array rows;
  for (const opened_table& table : tables) {
    for (const lookup_record& record : table.table.records()) {
      json::object row = json_of(record);
      row["file"] = table.file().path;
      row["layer"] = table.layer;
      rows.push_back(std::move(row));
    }
  }
  print_json(json::object{{"rows", std::move(rows)}});
}

}  // namespace tessera::tool
