#include "load.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "../failure.hpp"
#include "../json.hpp"
#include "bench_file.hpp"
#include "fields.hpp"
#include "numbers.hpp"
#include "replay_file.hpp"
#include "tune_file.hpp"

namespace tessera::tool::report {
namespace {

namespace json = boost::json;

constexpr std::size_t largest_file = std::size_t{256} << 20;
constexpr std::string_view cost_heading = "# Written by tools/measure-cost";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::size_t read_costs(std::string_view text, const std::string& path, input& to) {
  std::size_t number = 0;
  std::size_t count = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words.size() != 4 && words.size() != 6) {
      throw failure(
          fmt::format("{}:{}: has {} fields, a cost line has 4: row, seconds, MiB, bytes; of a "
                      "CUDA row 6, with registers and bytes of local memory",
                      path, number, words.size()));
    }
    row_cost cost;
    std::optional<double>* const parts[] = {&cost.seconds, &cost.mebibytes, &cost.bytes,
                                            &cost.registers, &cost.local_bytes};
    for (std::size_t at = 0; at + 1 < words.size(); ++at) {
      *parts[at] = number_in(words[at + 1]);
      if (!*parts[at] || **parts[at] < 0) {
        throw failure(fmt::format("{}:{}: field {} of row {} is \"{}\", must be a number from 0",
                                  path, number, at + 2, words[0], words[at + 1]));
      }
    }
    known_row& row = to.rows[std::string(words[0])];
    row.name = words[0];
    row.cost = cost;
    ++count;
  }
  return count;
}

void read_doctor(const json::object& document, const std::string& path, input& to) {
  const fields whole(document, path);
  const json::value& device = document.at("device");
  const json::value& limits = document.at("ceilings");
  if (!device.is_object() || !limits.is_object()) {
    whole.refuse(device.is_object() ? "ceilings" : "device", "is no object");
  }
  for (const json::key_value_pair& fact : device.get_object()) {
    const json::value& value = fact.value();
    // What this kind of device does not have.
    if (value.is_number() && value.to_number<double>() == 0) continue;
    to.machine.emplace_back(
        std::string(std::string_view(fact.key())),
        value.is_string() ? std::string(std::string_view(value.get_string())) : json_line(value));
  }
}

/// What a JSON document is and holds; throws if it is nothing a report is made from.
void read_document(const json::value& value, source& from, input& to) {
  const json::object* document = value.if_object();
  if (document != nullptr && is_bench_record(*document)) {
    to.runs.push_back(read_bench_run(*document, from.path, to.notes));
    from.kind = "bench run";
    from.contents = fmt::format("{}, {}", counted(to.runs.back().cases.size(), "case"),
                                counted(to.runs.back().ceilings.size(), "ceiling"));
    return;
  }
  if (document != nullptr && is_replay(*document)) {
    to.replays.push_back(read_replay(*document, from.path));
    from.kind = "replay";
    from.contents = counted(to.replays.back().steps.size(), "step");
    return;
  }
  if (document != nullptr && document->contains("device") && document->contains("ceilings")) {
    read_doctor(*document, from.path, to);
    from.kind = "device facts";
    from.contents = counted(to.machine.size(), "fact");
    return;
  }
  std::string keys;
  if (document != nullptr) {
    for (const json::key_value_pair& member : *document) {
      if (keys.size() > 80) break;
      keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ", std::string_view(member.key()));
    }
  }
  throw failure(fmt::format(
      "{}: is JSON {}, but no bench record (\"context\", \"benchmarks\"), no tune results "
      "(first line \"tessera\": \"tune\"), no replay (\"tessera\": \"replay\") and no `doctor "
      "--json` "
      "(\"device\", \"ceilings\")",
      from.path,
      document == nullptr ? "that is no object"
      : keys.empty()      ? "without keys"
                          : "with " + keys));
}

void read_file(source& from, input& to) {
  const std::string text = file_text(from.path, largest_file);
  from.bytes = text.size();
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) {
    throw failure(fmt::format("{}: has {} bytes and nothing in them", from.path, text.size()));
  }
  if (is_lookup_table(text)) {
    from.kind = "lookup table";
    from.contents = counted(read_lookup_table(text, from.path, to, from), "line");
  } else if (is_tune_result(text)) {
    from.kind = "tune results";
    from.contents = counted(read_tune_result(text, from.path, to), "problem");
  } else if (text.starts_with(cost_heading)) {
    from.kind = "row costs";
    from.contents = counted(read_costs(text, from.path, to), "row");
  } else if (text[begin] == '{' || text[begin] == '[') {
    read_document(parse_json(text, from.path), from, to);
  } else {
    throw failure(fmt::format(
        "{}: is none of the files a report is made from: bench record, replay or `doctor --json` "
        "(JSON), "
        "`tune --json` (JSON lines), lookup table (\"# tessera lookup table\"), costs (\"{}\")",
        from.path, cost_heading));
  }
}

}  // namespace

input load(const std::vector<std::string>& paths) {
  input found;
  std::set<std::filesystem::path> seen;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!seen.insert(std::filesystem::weakly_canonical(path, ignored)).second) {
      throw failure(fmt::format("{}: is given 2 times, must be given once", path));
    }
    source from;
    from.path = path;
    read_file(from, found);
    if (!from.bad_lines.empty()) {
      found.notes.push_back(fmt::format("{}: {}", path, from.bad_lines.front()));
    }
    found.sources.push_back(std::move(from));
  }
  gather_problems(found);
  return found;
}

}  // namespace tessera::tool::report
