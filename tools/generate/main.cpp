// tessera-generate: from axes, or a row list, to the generated files of a kernel library.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/version.hpp>

#include "c_header.hpp"
#include "code_version.hpp"
#include "cost.hpp"
#include "demand.hpp"
#include "families.hpp"
#include "output.hpp"
#include "plan.hpp"
#include "reference_page.hpp"
#include "row_list.hpp"
#include "served.hpp"
#include "stamps.hpp"
#include "units.hpp"

namespace {

namespace generate = tessera::generate;

// Exit codes: the answer is "no" (stale, over budget), and wrong use or bad input.
constexpr int no = 1;
constexpr int wrong = 2;

struct settings {
  std::filesystem::path output = "generated";
  std::filesystem::path costs;
  std::filesystem::path include;
  std::vector<std::filesystem::path> row_lists;
  generate::demand_files demands;
  std::string name;
  std::vector<std::string> backends;
  bool candidates = false;
  bool dry_run = false;
  bool check = false;
  bool restamp = false;
  int budget_rows = 0;
  double budget_seconds = 0;
  std::int64_t budget_bytes = 0;
};

int fail(int code, const std::string& message) {
  fmt::print(stderr, "tessera-generate: {}\n", message);
  return code;
}

void declare(CLI::App& app, settings& chosen) {
  app.set_version_flag("--version", std::string(tessera::version));
  app.add_option("--output", chosen.output, "folder of the generated files")->capture_default_str();
  app.add_option("--rows", chosen.row_lists,
                 "row list (one row name per line, # comments) instead of the default table");
  app.add_option("--models", chosen.demands.models,
                 "model descriptions (Hugging Face config.json): the rows that these models need");
  app.add_option("--trace", chosen.demands.traces, "recorded problems: the rows that these need");
  app.add_option("--lookup", chosen.demands.lookups,
                 "lookup tables: the rows they name for those problems, and their lines built in; "
                 "default: lookup/*.txt in the output folder");
  app.add_flag("--candidates", chosen.candidates,
               "also the same rows with other tiles, for a tuning to choose from; with models, "
               "traces, row lists or lookup tables");
  app.add_option("--name", chosen.name,
                 "write include/tessera/builds/NAME.hpp, the rows as compile-time data");
  app.add_option("--backends", chosen.backends,
                 "rows of these backends only; cpu: every cpu_*, which is the default for models, "
                 "traces and lookup tables")
      ->delimiter(',');
  app.add_option("--costs", chosen.costs,
                 "folder of measured costs; default: cost/ in the output folder");
  app.add_option("--include", chosen.include,
                 "folder of the library's headers; default: the installed ones, or the source's");
  app.add_flag("--dry-run", chosen.dry_run, "print rows, units and expected cost; write nothing");
  app.add_flag("--check", chosen.check,
               "status 1 unless the output folder is fresh; write nothing");
  app.add_flag("--restamp", chosen.restamp,
               "lines of the lookup tables get the digest of the present kernels: after changes "
               "that leave their rows as fast as before");
  app.add_option("--budget-rows", chosen.budget_rows, "rows of a family, instead of its budget");
  app.add_option("--budget-seconds", chosen.budget_seconds, "seconds of one core, likewise");
  app.add_option("--budget-bytes", chosen.budget_bytes, "bytes of code, likewise");
  app.footer(
      "Example: tessera-generate --dry-run\n"
      "Status: 0 done, 1 stale or over budget, 2 wrong use or bad input");
}

/// The backends to keep; empty keeps all.
generate::outcome<std::set<tessera::backend>> kept_backends(const settings& chosen) {
  std::set<tessera::backend> kept;
  for (const std::string& name : chosen.backends) {
    const auto wanted = tessera::backend_named(name);
    if (!wanted && name != "cpu") {
      std::string valid = "cpu";
      for (const auto target : tessera::all_backends) {
        valid += fmt::format(", {}", tessera::name_of(target));
      }
      return generate::refusal{
          fmt::format("--backends: '{}' is not a backend of this version; valid: {}", name, valid)};
    }
    for (const auto target : tessera::all_backends) {
      if (target == wanted || (!wanted && tessera::is_cpu(target))) kept.insert(target);
    }
  }
  return kept;
}

bool is_default_table(const settings& chosen) {
  return chosen.row_lists.empty() && chosen.demands.empty();
}

/// Beside each row those that do the same with other tiles.
void add_candidates(const generate::family& family, std::vector<generate::row>& rows) {
  const std::size_t asked = rows.size();
  for (std::size_t i = 0; i < asked; ++i) {
    std::ranges::move(family.candidates_beside(rows[i].name), std::back_inserter(rows));
  }
}

/// The default tables, or the rows that the lists name and those that models, traces and lookup
/// tables ask for; of the backends in `kept` only, if there are any in it.
generate::outcome<generate::demanded_rows> all_rows(const settings& chosen,
                                                    const std::set<tessera::backend>& kept,
                                                    const std::vector<generate::family>& families) {
  generate::demanded_rows all{.tables = std::vector<generate::table>(families.size()),
                              .reasons = {}};
  if (is_default_table(chosen)) {
    if (chosen.candidates) {
      return generate::refusal{
          "--candidates: of which rows? Give --models, --trace, --rows or --lookup"};
    }
    for (std::size_t index = 0; index < families.size(); ++index) {
      auto table = families[index].default_table();
      if (const auto* why = std::get_if<generate::refusal>(&table)) return *why;
      all.tables[index] = std::get<0>(std::move(table));
    }
    return all;
  }
  std::set<tessera::backend> targets = kept;
  if (targets.empty()) {
    std::ranges::copy_if(tessera::all_backends, std::inserter(targets, targets.end()),
                         [](tessera::backend target) { return tessera::is_cpu(target); });
  }
  auto demanded = generate::rows_for(chosen.demands, targets, families);
  if (const auto* why = std::get_if<generate::refusal>(&demanded)) return *why;
  all = std::get<0>(std::move(demanded));
  auto listed = generate::read_row_lists(chosen.row_lists, families);
  if (const auto* why = std::get_if<generate::refusal>(&listed)) return *why;
  for (std::size_t index = 0; index < families.size(); ++index) {
    auto& rows = all.tables[index].rows;
    std::ranges::move(std::get<0>(listed)[index].rows, std::back_inserter(rows));
    if (chosen.candidates) add_candidates(families[index], rows);
    std::ranges::sort(rows, {}, &generate::row::name);
    const auto repeated = std::ranges::unique(rows);
    rows.erase(repeated.begin(), repeated.end());
  }
  return all;
}

/// The rows of this run, filtered by backend.
generate::outcome<generate::demanded_rows> rows_of(const settings& chosen,
                                                   const std::vector<generate::family>& families) {
  const auto kept = kept_backends(chosen);
  if (const auto* why = std::get_if<generate::refusal>(&kept)) return *why;
  const auto& targets = std::get<0>(kept);
  auto all = all_rows(chosen, targets, families);
  if (std::holds_alternative<generate::refusal>(all)) return all;
  std::size_t before = 0;
  std::size_t after = 0;
  for (generate::table& table : std::get<0>(all).tables) {
    before += table.rows.size();
    std::erase_if(table.rows, [&](const generate::row& row) {
      return !targets.empty() && !targets.contains(row.target);
    });
    after += table.rows.size();
  }
  if (before == 0) return generate::refusal{"the row lists and lookup tables name no row"};
  if (after == 0) {
    return generate::refusal{fmt::format("none of the {} rows is of the backends {}", before,
                                         fmt::join(chosen.backends, ", "))};
  }
  return all;
}

/// The lookup tables to build in: those asked for, or, for a default table, what lies beside it.
std::vector<std::filesystem::path> lookups_of(const settings& chosen) {
  if (!is_default_table(chosen)) return chosen.demands.lookups;
  std::vector<std::filesystem::path> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(chosen.output / "lookup", none)) {
    if (entry.path().extension() == ".txt") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void apply_budget(const settings& chosen, generate::budget& limits) {
  if (chosen.budget_rows > 0) limits.rows = chosen.budget_rows;
  if (chosen.budget_seconds > 0) limits.seconds = chosen.budget_seconds;
  if (chosen.budget_bytes > 0) limits.bytes = chosen.budget_bytes;
}

int finish(const settings& chosen, const generate::file_set& files) {
  if (chosen.check) {
    const std::string stale = generate::stale_files(chosen.output, files);
    if (stale.empty()) return 0;
    fmt::print("{}", stale);
    return fail(no, fmt::format("{} is not fresh; run tessera-generate --output {}",
                                chosen.output.string(), chosen.output.string()));
  }
  const auto done = generate::write_files(chosen.output, files);
  if (const auto* why = std::get_if<generate::refusal>(&done)) return fail(wrong, why->message);
  fmt::print(stderr, "{}: {}\n", chosen.output.string(), std::get<std::string>(done));
  return 0;
}

/// Tells of lines of the lookup tables that are of other kernels, or makes them of these.
int stamp(const settings& chosen, const std::vector<generate::table>& tables,
          const generate::versions_by_family& versions) {
  const bool renews = chosen.restamp && !chosen.check && !chosen.dry_run;
  const auto report =
      generate::check_stamps(lookups_of(chosen), tables, versions,
                             renews ? generate::stamp_action::renew : generate::stamp_action::tell);
  if (const auto* why = std::get_if<generate::refusal>(&report)) return fail(wrong, why->message);
  fmt::print(stderr, "{}", std::get<std::string>(report));
  return 0;
}

int run(const settings& chosen) {
  auto families = generate::all_families();
  const auto wanted = rows_of(chosen, families);
  if (const auto* why = std::get_if<generate::refusal>(&wanted)) return fail(wrong, why->message);
  const auto& [tables, reasons] = std::get<0>(wanted);
  const auto include = generate::include_folder(chosen.include);
  if (const auto* why = std::get_if<generate::refusal>(&include)) return fail(wrong, why->message);
  const auto digests = generate::versions_of_all(std::get<0>(include), families);
  if (const auto* why = std::get_if<generate::refusal>(&digests)) return fail(wrong, why->message);
  const auto& versions = std::get<0>(digests);
  if (int failed = stamp(chosen, tables, versions); failed != 0) return failed;
  const auto lookup = generate::embedded_lookup(lookups_of(chosen), tables);
  if (const auto* why = std::get_if<generate::refusal>(&lookup)) return fail(wrong, why->message);
  const std::filesystem::path costs = chosen.costs.empty() ? chosen.output / "cost" : chosen.costs;
  generate::file_set files;
  std::vector<std::pair<generate::family, std::vector<generate::unit>>> all_units;
  std::string over;
  for (std::size_t index = 0; index < families.size(); ++index) {
    generate::family& family = families[index];
    for (generate::family_part& part : family.parts) apply_budget(chosen, part.limits);
    const auto read = generate::cost_file::read(costs / fmt::format("{}.txt", family.name));
    if (const auto* why = std::get_if<generate::refusal>(&read)) return fail(wrong, why->message);
    const auto& cost = std::get<0>(read);
    const auto units = generate::units_of(family, tables[index].rows);
    if (chosen.dry_run) fmt::print("{}", generate::plan_text(family, tables[index], units, cost));
    over += generate::exceeded(family, units, cost);
    files.merge(
        generate::files_of(family, tables[index].rows, units, cost, versions.at(family.name)));
    all_units.emplace_back(family, units);
  }
  if (!over.empty()) return fail(no, over.substr(0, over.size() - 1));
  if (chosen.dry_run) return 0;
  files.merge(generate::common_files(all_units));
  auto c_interface = generate::c_interface_files(families);
  if (const auto* why = std::get_if<generate::refusal>(&c_interface)) {
    return fail(wrong, why->message);
  }
  files.merge(std::get<0>(std::move(c_interface)));
  if (is_default_table(chosen)) files.merge(generate::reference_page(families));
  files.merge(generate::lookup_unit(std::get<0>(lookup)));
  if (!chosen.name.empty()) {
    files.merge(generate::served_header(chosen.name, families, tables, reasons));
  }
  return finish(chosen, files);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Makes the rows and units of a kernel library.", "tessera-generate");
  settings chosen;
  declare(app, chosen);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong;
  }
  try {
    return run(chosen);
  } catch (const std::exception& error) {
    return fail(wrong, error.what());
  }
}
