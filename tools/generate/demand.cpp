#include "demand.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/lookup/impl/record.hpp>
#include <tessera/lookup/record.hpp>
#include <tessera/runtime/impl/trace_line.hpp>
#include <tessera/spec/problem_text.hpp>

#include "../tessera/model_problems.hpp"

namespace tessera::generate {
namespace {

namespace fs = std::filesystem;

/// A problem and who asks it.
struct asked_problem {
  std::string line;
  std::string who;
};

outcome<std::string> text_of_file(const fs::path& path, std::string_view what) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream || fs::is_directory(path)) {
    return refusal{fmt::format("{}: cannot read the {}", path.string(), what)};
  }
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::vector<fs::path> without_repeats(const std::vector<fs::path>& paths) {
  std::vector<fs::path> kept;
  for (const fs::path& path : paths) {
    if (std::ranges::find(kept, path) == kept.end()) kept.push_back(path);
  }
  return kept;
}

void ask_models(const demand_files& files, std::vector<asked_problem>& asked) {
  using tool::model_phase;
  for (const fs::path& path : without_repeats(files.models)) {
    const tool::model_description model = tool::read_model(path.string());
    const tool::model_question question{
        .phases = {model_phase::prefill, model_phase::append, model_phase::decode}};
    for (const tool::model_problem& problem : tool::problems_of(model, question)) {
      asked.push_back(
          {problem.text, fmt::format("{}: {}, {} layers, {}", model.name, name_of(problem.phase),
                                     problem.kind, problem.name)});
    }
  }
}

std::optional<refusal> ask_traces(const demand_files& files, std::vector<asked_problem>& asked) {
  for (const fs::path& path : without_repeats(files.traces)) {
    const auto text = text_of_file(path, "trace");
    if (const auto* why = std::get_if<refusal>(&text)) return *why;
    std::istringstream lines(std::get<std::string>(text));
    std::string line;
    const std::size_t before = asked.size();
    for (int number = 1; std::getline(lines, line); ++number) {
      const result<trace_line> read = parse_trace_line(line);
      if (!read) return refusal{fmt::format("{}:{}: {}", path.string(), number, read.message())};
      if (read->problem.empty()) continue;
      asked.push_back({read->problem, fmt::format("{}:{}", path.string(), number)});
    }
    if (asked.size() == before)
      return refusal{fmt::format("{}: records no problem", path.string())};
  }
  return std::nullopt;
}

/// The family of a problem line by its first word, or its number of families if there is none.
std::size_t family_of(const std::string& line, const std::vector<family>& families) {
  const std::string_view op = std::string_view(line).substr(0, line.find(' '));
  const auto found = std::ranges::find_if(families, [&](const family& family) {
    return std::ranges::any_of(family.operations,
                               [&](const operation& known) { return known.is_called(op); });
  });
  return static_cast<std::size_t>(found - families.begin());
}

std::string op_names(const std::vector<family>& families) {
  std::string names;
  for (const family& family : families) {
    for (const operation& op : family.operations) text::append_names(names, op);
  }
  return names;
}

void add(demanded_rows& demanded, std::size_t family, row row, const std::string& who) {
  demanded.reasons[row.name].insert(who);
  demanded.tables[family].rows.push_back(std::move(row));
}

/// One row per backend; at least one.
std::optional<refusal> serve(const asked_problem& asked, const std::set<backend>& targets,
                             const std::vector<family>& families, demanded_rows& demanded) {
  const std::size_t index = family_of(asked.line, families);
  if (index == families.size()) {
    return refusal{fmt::format("{}: '{}' starts with none of the operations {}", asked.who,
                               asked.line, op_names(families))};
  }
  bool served = false;
  for (const backend target : targets) {
    auto found = families[index].row_for(asked.line, target);
    if (const auto* why = std::get_if<refusal>(&found)) {
      return refusal{fmt::format("{}: {}", asked.who, why->message)};
    }
    auto& cheapest = std::get<std::optional<row>>(found);
    if (!cheapest) continue;
    served = true;
    add(demanded, index, *std::move(cheapest), asked.who);
  }
  if (served) return std::nullopt;
  std::vector<std::string_view> names;
  for (const backend target : targets) names.push_back(name_of(target));
  return refusal{fmt::format("{}: none of the backends {} can have a row for {}", asked.who,
                             fmt::join(names, ", "), asked.line)};
}

outcome<std::vector<lookup_record>> records_of(const std::vector<fs::path>& paths) {
  std::vector<lookup_record> records;
  for (const fs::path& path : without_repeats(paths)) {
    const auto text = text_of_file(path, "lookup table");
    if (const auto* why = std::get_if<refusal>(&text)) return *why;
    lookup_text read = parse_table(std::get<std::string>(text));
    if (!read.faults.empty()) {
      return refusal{fmt::format("{}:{}: {}", path.string(), read.faults.front().line,
                                 read.faults.front().reason)};
    }
    if (read.newer > 0) {
      return refusal{fmt::format("{}: {} lines have schema {}, this version reads up to {}",
                                 path.string(), read.newer, read.newest_schema, lookup_schema)};
    }
    std::ranges::move(read.records, std::back_inserter(records));
  }
  return records;
}

/// True if the record was measured for problems that differ from an asked one in their sizes only.
bool is_asked(const lookup_record& record, const std::set<std::string>& identities) {
  const auto after = identities.upper_bound(record.identity);
  if (after == identities.begin()) return false;
  const std::string& candidate = *std::prev(after);
  return record.identity == candidate || record.identity.starts_with(candidate + ' ');
}

/// Adds the rows that the records name: all, or those for the identities that were asked.
std::optional<refusal> add_measured(const demand_files& files,
                                    const std::vector<asked_problem>& asked,
                                    const std::set<backend>& targets,
                                    const std::vector<family>& families, demanded_rows& demanded) {
  if (files.lookups.empty()) return std::nullopt;
  const auto read = records_of(files.lookups);
  if (const auto* why = std::get_if<refusal>(&read)) return *why;
  std::vector<std::set<std::string>> identities(families.size());
  for (const asked_problem& question : asked) {
    const std::size_t index = family_of(question.line, families);
    identities[index].insert(families[index].identity_of(question.line));
  }
  for (const lookup_record& record : std::get<0>(read)) {
    const auto found = std::ranges::find(families, record.family, &family::name);
    if (found == families.end()) continue;
    const auto index = static_cast<std::size_t>(found - families.begin());
    if (!asked.empty() && !is_asked(record, identities[index])) continue;
    auto listed = found->row_named(record.row);
    // A row that this version does not know is a hint of another version.
    if (!std::holds_alternative<row>(listed) || !targets.contains(std::get<row>(listed).target))
      continue;
    add(demanded, index, std::get<row>(std::move(listed)), "lookup table");
  }
  return std::nullopt;
}

}  // namespace

outcome<demanded_rows> rows_for(const demand_files& files, const std::set<backend>& targets,
                                const std::vector<family>& families) {
  std::vector<asked_problem> asked;
  ask_models(files, asked);
  if (auto why = ask_traces(files, asked)) return *why;
  demanded_rows demanded{.tables = std::vector<table>(families.size()), .reasons = {}};
  for (const asked_problem& question : asked) {
    if (auto why = serve(question, targets, families, demanded)) return *why;
  }
  if (auto why = add_measured(files, asked, targets, families, demanded)) return *why;
  return demanded;
}

outcome<std::vector<embedded_line>> embedded_lookup(const std::vector<fs::path>& lookups,
                                                    const std::vector<table>& tables) {
  const auto read = records_of(lookups);
  if (const auto* why = std::get_if<refusal>(&read)) return *why;
  const targets_by_row targets = targets_of(tables);
  std::vector<embedded_line> lines;
  for (const lookup_record& record : std::get<0>(read)) {
    const auto target = targets.find(record.row);
    if (target != targets.end()) lines.push_back({line_of(record), target->second});
  }
  return lines;
}

}  // namespace tessera::generate
