// The best row over sizes: one map for each kind of problem, the two sizes that vary most as its
// axes. A map is a table, so that it can be read without seeing its colours.
#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "chart.hpp"
#include "key_text.hpp"
#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

using problem_list = std::vector<const tuned_problem*>;

constexpr std::size_t least_cells = 3;  // a smaller map shows nothing that a line does not

// A map of more columns takes the whole width of the page.
constexpr std::size_t most_map_columns = 6;

/// Problems of one kind, and the sizes that make the axes.
struct size_map {
  std::string family;
  std::string device_class;
  named_values kind;   ///< identity and the sizes that do not vary
  std::string across;  ///< name of the size along the columns
  std::string down;    ///< along the rows; may be empty
  problem_list problems;
};

std::string value_of(const tuned_problem& problem, std::string_view name) {
  for (const auto& [key, value] : values_of(problem.size)) {
    if (key == name) return value;
  }
  return {};
}

/// The names of sizes with more than one value, those with most values first.
std::vector<std::string> varying(const problem_list& problems) {
  std::vector<std::string> names;
  std::map<std::string, std::set<std::string>> values;
  for (const tuned_problem* problem : problems) {
    for (const auto& [name, value] : values_of(problem->size)) {
      if (values[name].empty()) names.push_back(name);
      values[name].insert(value);
    }
  }
  std::erase_if(names, [&](const std::string& name) { return values[name].size() < 2; });
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return values[a].size() > values[b].size();
  });
  return names;
}

/// Splits problems that agree on all but sizes into maps of two varying sizes each.
void add_maps(const problem_list& problems, std::vector<size_map>& maps) {
  const std::vector<std::string> names = varying(problems);
  const std::string across = names.empty() ? "" : names[0];
  const std::string down = names.size() < 2 ? "" : names[1];
  std::map<named_values, problem_list> facets;
  for (const tuned_problem* problem : problems) {
    named_values rest = values_of(problem->size);
    std::erase_if(rest,
                  [&](const auto& pair) { return pair.first == across || pair.first == down; });
    facets[rest].push_back(problem);
  }
  for (const auto& [rest, facet] : facets) {
    const tuned_problem& any = *facet.front();
    named_values kind = values_of(any.identity);
    kind.insert(kind.end(), rest.begin(), rest.end());
    maps.push_back({any.family, any.device_class, std::move(kind), across, down, facet});
  }
}

std::vector<size_map> maps_of(const input& from) {
  std::map<std::tuple<std::string, std::string, std::string>, problem_list> kinds;
  for (const tuned_problem& problem : from.problems) {
    if (!problem.row.empty())
      kinds[{problem.family, problem.device_class, problem.identity}].push_back(&problem);
  }
  std::vector<size_map> maps;
  for (const auto& [kind, problems] : kinds) add_maps(problems, maps);
  return maps;
}

/// The rows of a map, those that win most problems first; the place is the colour.
std::vector<std::string> winners_of(const size_map& map) {
  std::map<std::string, std::size_t> wins;
  for (const tuned_problem* problem : map.problems) ++wins[problem->row];
  std::vector<std::string> rows;
  for (const auto& [row, count] : wins) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const std::string& a, const std::string& b) { return wins[a] > wins[b]; });
  return rows;
}

/// What all maps share: what their kinds have in common, and a colour for each short name.
struct common_parts {
  named_values kind;
  std::vector<std::string> names;  ///< those that win most first; the place is the colour

  explicit common_parts(const std::vector<size_map>& maps) {
    std::map<std::string, std::size_t> wins;
    for (const size_map& map : maps) {
      if (&map == &maps.front()) kind = map.kind;
      std::erase_if(kind, [&](const auto& pair) {
        return std::find(map.kind.begin(), map.kind.end(), pair) == map.kind.end();
      });
      const std::map<std::string, std::string> short_of = short_names(winners_of(map));
      for (const tuned_problem* problem : map.problems) ++wins[short_of.at(problem->row)];
    }
    for (const auto& [name, count] : wins) names.push_back(name);
    std::stable_sort(names.begin(), names.end(),
                     [&](const std::string& a, const std::string& b) { return wins[a] > wins[b]; });
  }

  std::string colour_of(const std::string& name) const {
    const auto place =
        static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    return place < palette_size ? fmt::format("f{}", place + 1) : "f0";
  }
};

/// "type=bf16 head_dim=128"; pairs that are in `without` are left out.
std::string text_of(const named_values& pairs, const named_values& without = {}) {
  std::string text;
  for (const auto& pair : pairs) {
    if (std::find(without.begin(), without.end(), pair) != without.end()) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", pair.first, pair.second);
  }
  return text;
}

void write_cell(markup& page, const tuned_problem* problem, const common_parts& common,
                const std::map<std::string, std::string>& names) {
  if (problem == nullptr) {
    page.leaf("td", {{"class", "gap"}}, "");
    return;
  }
  const std::string& name = names.at(problem->row);
  const auto cell = page.element(
      "td", {{"class", fmt::format("tile {}", common.colour_of(name))}, {"title", problem->row}});
  {
    const auto label = page.element("b");
    page.breakable(name);
  }
  if (problem->decision == "default" || problem->row == problem->default_row) {
    page.leaf("small", "default");
  } else if (const std::optional<double> gain = problem->gain()) {
    const auto small = page.element("small");
    number(page, *gain, gain_text(*gain));
  }
}

void write_legend(markup& page, const std::vector<std::string>& rows, const common_parts& common,
                  const std::map<std::string, std::string>& names) {
  const auto list = page.element("ul", {{"class", "legend"}});
  for (const std::string& row : rows) {
    const auto item = page.element("li");
    page.leaf("span",
              {{"class", fmt::format("swatch {}", common.colour_of(names.at(row)))},
               {"aria-hidden", "true"}},
              "");
    const auto text = page.element("span");
    page.leaf("b", names.at(row));
    page.text(" ");
    const auto code = page.element("code");
    page.breakable(row);
  }
}

void write_map(markup& page, const size_map& map, const common_parts& common) {
  std::set<std::string, by_size> columns;
  std::set<std::string, by_size> lines;
  std::map<std::pair<std::string, std::string>, const tuned_problem*> cells;
  for (const tuned_problem* problem : map.problems) {
    const std::string x = value_of(*problem, map.across), y = value_of(*problem, map.down);
    columns.insert(x);
    lines.insert(y);
    cells[{y, x}] = problem;
  }
  const std::vector<std::string> rows = winners_of(map);
  const std::map<std::string, std::string> names = short_names(rows);
  std::string caption = text_of(map.kind, common.kind);
  if (caption.empty()) caption = map.kind.empty() ? map.family : text_of(map.kind);
  const auto figure =
      page.element("figure", {{"class", columns.size() > most_map_columns ? "map whole" : "map"}});
  {
    const auto area = page.element(
        "div",
        {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", caption}});
    const auto table = page.element("table", {{"class", "heat"}});
    page.leaf("caption", caption);
    {
      const auto head = page.element("thead");
      const auto row = page.element("tr");
      page.leaf(
          "th", {{"scope", "col"}, {"class", "corner"}},
          map.down.empty() ? map.across + " →" : fmt::format("{} ↓ {} →", map.down, map.across));
      for (const std::string& column : columns) page.leaf("th", {{"scope", "col"}}, column);
    }
    const auto body = page.element("tbody");
    for (const std::string& line : lines) {
      const auto row = page.element("tr");
      page.leaf("th", {{"scope", "row"}}, line);
      for (const std::string& column : columns) {
        const auto found = cells.find({line, column});
        write_cell(page, found == cells.end() ? nullptr : found->second, common, names);
      }
    }
  }
  write_legend(page, rows, common, names);
}

/// Maps that share family and device class: what they have in common once, then the maps.
void write_group(markup& page, const std::vector<size_map>& maps) {
  if (maps.empty()) return;
  const common_parts common(maps);
  {
    const auto heading_of_group = page.element("h3");
    page.text(maps.front().family);
    if (!maps.front().device_class.empty()) {
      page.text(" on ");
      const auto code = page.element("code");
      page.breakable(maps.front().device_class);
    }
  }
  if (!common.kind.empty() && maps.size() > 1) {
    const auto shared = page.element("p");
    page.text("In all of them: ");
    page.leaf("code", text_of(common.kind));
  }
  const auto grid = page.element("div", {{"class", "maps"}});
  for (const size_map& map : maps) write_map(page, map, common);
}

void write_others(markup& page, const std::vector<size_map>& maps) {
  const bool any = std::any_of(maps.begin(), maps.end(), [](const size_map& map) {
    return map.problems.size() < least_cells;
  });
  if (!any) return;
  page.leaf("h3", "Problems without neighbours");
  const table_scope table(page, "Best row of kinds of problems measured at one or two sizes",
                          {{"problem"}, {"sizes"}, {"best row"}, {"gain", true}});
  for (const size_map& map : maps) {
    if (map.problems.size() >= least_cells) continue;
    for (const tuned_problem* problem : map.problems) {
      const auto row = page.element("tr");
      text_cell(page, "problem", problem->identity.empty() ? problem->problem : problem->identity);
      text_cell(page, "sizes", problem->size);
      code_cell(page, "best row", problem->row);
      const std::optional<double> gain = problem->gain();
      number_cell(page, "gain", gain, gain_text(gain.value_or(1)));
    }
  }
}

}  // namespace

void map_section(markup& page, const input& from) {
  const auto whole = section(page, "map", "Best tile over sizes");
  const std::vector<size_map> maps = maps_of(from);
  if (maps.empty()) {
    return nothing_given(
        page, "No measured problem was given.",
        "tessera tune --json > tune.jsonl, then add tune.jsonl or the lookup table");
  }
  page.leaf("p",
            "Each cell is a measured problem: the row that answered fastest, and how much faster "
            "than the default it is. Names of rows are shortened to the parts that differ within a "
            "map; the same short name has the same colour everywhere.");
  std::vector<size_map> group;
  for (const size_map& map : maps) {
    if (map.problems.size() < least_cells) continue;
    if (!group.empty() &&
        (group.back().family != map.family || group.back().device_class != map.device_class)) {
      write_group(page, group);
      group.clear();
    }
    group.push_back(map);
  }
  write_group(page, group);
  write_others(page, maps);
}

}  // namespace tessera::tool::report
