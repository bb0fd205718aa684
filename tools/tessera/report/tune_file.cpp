#include "tune_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include <tessera/lookup/record.hpp>

#include "../failure.hpp"
#include "../json.hpp"
#include "fields.hpp"

namespace tessera::tool::report {
namespace {

namespace json = boost::json;

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

measurement read_candidate(const fields& members) {
  measurement found;
  found.row = members.required_text("row");
  found.state = members.required_text("state");
  found.reason = members.text("reason");
  found.us = members.time("median_us");
  found.spread_us = members.number("spread_us");
  if (found.state == "timed" && !found.us) {
    members.refuse("median_us", "is missing, a candidate whose state is \"timed\" has one");
  }
  return found;
}

/// The time that the candidates give for a row; empty if they do not have it.
std::optional<double> time_of(const std::vector<measurement>& measured, const std::string& row) {
  for (const measurement& measurement : measured) {
    if (measurement.row == row && measurement.us) return measurement.us;
  }
  return std::nullopt;
}

void check_agreement(const fields& members, std::string_view field, std::optional<double> said,
                     const std::vector<measurement>& measured, const std::string& row) {
  const std::optional<double> among = time_of(measured, row);
  if (!said || !among || std::abs(*said / *among - 1) <= 0.001) return;
  members.refuse(field, fmt::format("is {}, the candidate {} has {}", *said, row, *among));
}

/// Zero is how a file says that something was not measured.
std::optional<double> above_zero(std::optional<double> value) {
  return value && *value > 0 ? value : std::nullopt;
}

tuned_problem read_problem(const fields& members) {
  tuned_problem found;
  found.family = members.required_text("family");
  found.device_class = members.text("device_class");
  found.identity = members.text("identity");
  found.size = members.text("size");
  found.problem = members.required_text("problem");
  found.decision = members.required_text("decision");
  found.reason = members.text("reason");
  found.row = members.text("row");
  found.default_row = members.text("default_row");
  found.us = above_zero(members.number("median_us"));
  found.spread_us = members.number("spread_us");
  found.default_us = above_zero(members.number("default_us"));
  if (found.row != found.default_row) found.again = above_zero(members.number("hold_out_gain"));
  found.count = members.number("count").value_or(1);
  if (const json::array* all = members.array("candidates")) {
    for (std::size_t at = 0; at < all->size(); ++at) {
      found.measured.push_back(read_candidate(members.element(*all, at, "candidates")));
    }
  }
  check_agreement(members, "median_us", found.us, found.measured, found.row);
  check_agreement(members, "default_us", found.default_us, found.measured, found.default_row);
  if (found.decision != "failed" && (found.row.empty() || !found.us)) {
    members.refuse(found.row.empty() ? "row" : "median_us",
                   fmt::format("is missing, decision is \"{}\"", found.decision));
  }
  return found;
}

tuned_problem problem_of(const lookup_record& record, const std::string& path) {
  tuned_problem found;
  found.path = path;
  found.family = record.family;
  found.device_class = record.device_class;
  found.identity = record.identity;
  found.size = record.size;
  found.row = record.row;
  found.default_row = record.default_row;
  found.us = record.median_us;
  found.spread_us = record.spread_us;
  found.default_us = above_zero(record.default_us);
  found.decision = record.row == record.default_row ? "default" : "tuned";
  const auto add = [&](const std::string& row, double us, std::optional<double> spread) {
    if (row.empty() || !(us > 0) || time_of(found.measured, row)) return;
    found.measured.push_back({row, "timed", "", us, spread});
  };
  add(record.row, record.median_us, record.spread_us);
  add(record.default_row, record.default_us, std::nullopt);
  add(record.runner_up, record.runner_up_us, std::nullopt);
  found.details = {{"runner-up", record.runner_up},
                   {"runner-up µs", fmt::format("{}", record.runner_up_us)},
                   {"samples", fmt::format("{}", record.samples)},
                   {"mode", record.mode},
                   {"source", record.source},
                   {"code version", record.code_version},
                   {"semantic version", fmt::format("{}", record.semantic_version)},
                   {"environment", record.environment},
                   {"date", record.date}};
  return found;
}

/// The tuner's log has the form of a table, one line per row that was tried; the `source` of such a
/// line is this, the state, and perhaps ": " and a reason.
constexpr std::string_view log_source = "tune ";

/// Adds one line of the log to the problem it belongs to: the last of `problems`, or a new one.
void take_log_line(const lookup_record& record, const std::string& path,
                   std::vector<tuned_problem>& problems) {
  const std::string_view said = std::string_view(record.source).substr(log_source.size());
  const std::string_view state = said.substr(0, said.find(": "));
  const std::string_view reason = said.substr(std::min(state.size() + 2, said.size()));
  const auto same_key = [&](const tuned_problem& problem) {
    return problem.path == path && problem.family == record.family &&
           problem.identity == record.identity && problem.size == record.size &&
           problem.device_class == record.device_class;
  };
  auto found = std::find_if(problems.rbegin(), problems.rend(), same_key);
  if (found == problems.rend()) {
    tuned_problem fresh = problem_of(record, path);
    fresh.row.clear();
    fresh.us.reset();
    fresh.spread_us.reset();
    fresh.decision = "undecided";
    fresh.measured.clear();
    problems.push_back(std::move(fresh));
    found = problems.rbegin();
  }
  if (state == "decided") {
    found->row = record.row;
    found->us = record.median_us;
    found->spread_us = record.spread_us;
    found->default_us = above_zero(record.default_us);
    found->decision = record.row == record.default_row ? "default" : "tuned";
    found->reason = reason;
    return;
  }
  std::erase_if(found->measured,
                [&](const measurement& measurement) { return measurement.row == record.row; });
  measurement measurement{record.row, std::string(state), std::string(reason), {}, {}};
  if (record.samples > 0) {  // else the time is a prediction
    measurement.us = record.median_us;
    measurement.spread_us = record.spread_us;
  }
  found->measured.push_back(std::move(measurement));
}

}  // namespace

bool is_tune_result(std::string_view text) {
  if (!text.starts_with('{')) return false;
  try {
    const json::value head = parse_json(first_line(text), "");
    const json::value* kind = head.is_object() ? head.get_object().if_contains("tessera") : nullptr;
    return kind != nullptr && kind->is_string() && kind->get_string() == "tune";
  } catch (const failure&) {
    return false;  // a JSON document of several lines
  }
}

std::size_t read_tune_result(std::string_view text, const std::string& path, input& to) {
  std::size_t number = 0;
  std::size_t count = 0;
  while (!text.empty()) {
    const std::string_view line = first_line(text);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const std::string subject = fmt::format("{}:{}", path, number);
    const json::value value = parse_json(line, subject);
    if (!value.is_object()) throw failure(subject + ": is not a JSON object");
    const json::object& object = value.get_object();
    if (object.contains("tessera") || object.contains("summary")) {
      const json::value* summary = object.if_contains("summary");
      const json::object& facts =
          summary != nullptr && summary->is_object() ? summary->get_object() : object;
      for (const json::key_value_pair& fact : facts) {
        const json::value& element = fact.value();
        to.tuning.emplace_back(std::string(std::string_view(fact.key())),
                               element.is_string()
                                   ? std::string(std::string_view(element.get_string()))
                                   : json_line(element));
      }
      continue;
    }
    tuned_problem found = read_problem({object, subject});
    found.path = path;
    found.line = number;
    to.problems.push_back(std::move(found));
    ++count;
  }
  return count;
}

bool is_lookup_table(std::string_view text) {
  constexpr std::string_view heading = "# tessera lookup table";
  return text.starts_with(heading) || text.starts_with(lookup_marker);
}

std::size_t read_lookup_table(std::string_view text, const std::string& path, input& to,
                              source& from) {
  const lookup_text read = parse_table(text);
  for (const lookup_record& record : read.records) {
    if (record.source.starts_with(log_source)) {
      take_log_line(record, path, to.problems);
    } else {
      to.table.push_back(problem_of(record, path));
    }
  }
  for (const line_fault& fault : read.faults) {
    from.bad_lines.push_back(fmt::format("line {}: {}", fault.line, fault.reason));
  }
  const auto named = static_cast<std::int64_t>(read.faults.size());
  if (read.damaged > named) {
    from.bad_lines.push_back(fmt::format("and {} more damaged lines", read.damaged - named));
  }
  if (read.newer > 0) {
    from.bad_lines.push_back(
        fmt::format("{} lines are of schema {}, this version reads up to schema {}", read.newer,
                    read.newest_schema, lookup_schema));
  }
  return read.records.size();
}

void gather_problems(input& to) {
  using key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<key, std::size_t> place;
  std::vector<tuned_problem> gathered;
  const auto take = [&](const tuned_problem& problem) {
    // Without the parts of a key, the problem's own text tells problems apart.
    const std::string& size = problem.size.empty() ? problem.problem : problem.size;
    const auto [found, fresh] = place.try_emplace(
        {problem.family, problem.device_class, problem.identity, size}, gathered.size());
    if (fresh) {
      gathered.push_back(problem);
    } else {
      gathered[found->second] = problem;
    }
  };
  for (const tuned_problem& problem : to.table) take(problem);
  for (const tuned_problem& problem : to.problems) take(problem);
  to.problems = std::move(gathered);
}

}  // namespace tessera::tool::report
