// `tessera tune`: measures the rows that fit each problem and keeps the winners in the user's
// table.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/tables.hpp>

#include "command.hpp"
#include "json.hpp"
#include "problem_list.hpp"
#include "terminal.hpp"
#include "tune_device.hpp"
#include "tune_report.hpp"

namespace tessera::tool {
namespace {

namespace fs = std::filesystem;

struct tune_flags : common_flags {
  problem_flags problems;
  tuner::measuring_rules rules;
  std::string output;
  double budget = 0;
  tune_device_flags device;
  bool retune = false;
  bool accept_disturbed = false;
  bool dry_run = false;
};

/// The folder that the table will be written to, or the nearest one above it that exists, must take
/// files: known before anything is measured.
void check_writable(const std::string& table) {
  fs::path folder = fs::absolute(table).parent_path();
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw failure(
      fmt::format("{}: cannot be written, {} takes no files; --output FILE or "
                  "TESSERA_TABLE_DIR names another place",
                  table, folder.string()));
}

std::string table_path(const tune_flags& flags) {
  const std::string path = flags.output.empty() ? process_table_locations().user : flags.output;
  if (path.empty()) {
    throw failure(
        "there is no place for a lookup table: set TESSERA_TABLE_DIR, or HOME, or give "
        "--output FILE");
  }
  return path;
}

/// The command as it could be typed again.
std::string command_of(const tune_flags& flags) {
  const problem_flags& problems = flags.problems;
  const tune_flags standard;
  std::string text = "tessera tune";
  for (const std::string& model : problems.models) text += " --model " + model;
  if (!problems.models.empty()) text += fmt::format(" --phase {}", fmt::join(problems.phases, ","));
  if (problems.tokens > 0) text += fmt::format(" --tokens {}", problems.tokens);
  if (problems.batch > 1) text += fmt::format(" --batch {}", problems.batch);
  if (!problems.problems.empty()) text += " --problems " + problems.problems;
  if (!problems.trace.empty()) text += " --trace " + problems.trace;
  if (flags.budget > 0) text += fmt::format(" --budget {}", flags.budget);
  if (flags.retune) text += " --retune";
  if (flags.accept_disturbed) text += " --accept-disturbed";
  if (flags.rules.most_candidates != standard.rules.most_candidates) {
    text += fmt::format(" --max {}", flags.rules.most_candidates);
  }
  if (flags.rules.deciding.min_gain != standard.rules.deciding.min_gain) {
    text += fmt::format(" --min-gain {}", flags.rules.deciding.min_gain);
  }
  if (flags.rules.seed != standard.rules.seed) text += fmt::format(" --seed {}", flags.rules.seed);
  if (!flags.device.backend.empty()) text += " --backend " + flags.device.backend;
  if (flags.device.threads > 0) text += fmt::format(" --threads {}", flags.device.threads);
  return text;
}

std::string where_results_are(const std::string& table) {
  if (fs::exists(table)) {
    return fmt::format("Winners are in {}; the next run of any program uses them.\n", table);
  }
  const fs::path measured = fs::path(table).parent_path() / "measurements";
  if (!fs::exists(measured)) return "No winner to write.\n";
  return fmt::format("No winner to write; measurements are in {}.\n", measured.string());
}

exit_status measure(tuner::session& tuning, const std::vector<tuner::planned_problem>& planned,
                    const tune_flags& flags) {
  tuner::session_summary all;
  std::vector<tuner::tuned_problem> found;
  {
    tune_progress progress(flags.quiet, flags.budget);
    const tuner::session_events events{
        .begins = [&](const auto& problem, std::size_t index,
                      std::size_t total) { progress.begin(problem, index, total); },
        .measures = [&](std::string_view phase, const auto& row) { progress.measure(phase, row); },
        .ends =
            [&](const tuner::tuned_problem& problem) {
              progress.end(problem);
              if (flags.json) print(json_line(to_json(problem)) + "\n");
            }};
    auto measured = tuning.run(planned, events);
    require(measured.failure(), tuning.options().table);
    found = *std::move(measured);
  }
  all = summary_of(found, planned.size());
  if (flags.json) {
    print(json_line(boost::json::object{{"summary", to_json(all)}}) + "\n");
  } else {
    print_found(found, all);
    print(where_results_are(tuning.options().table));
  }
  return all.failed == 0 ? exit_status::success : exit_status::no;
}

exit_status tune(const tune_flags& flags) {
  tuner::session_options options;
  options.table = table_path(flags);
  const tune_device device(flags.device);
  options.where = device.conditions();
  options.measuring = flags.rules;
  options.budget_seconds = flags.budget;
  options.retune = flags.retune;
  options.accept_disturbed = flags.accept_disturbed;
  options.environment = device.environment();
  const std::vector<tuner::weighted_problem> problems =
      read_problems(flags.problems, options.where);
  if (!flags.dry_run) check_writable(options.table);
  tuner::session tuning(options);
  const auto planned = tuning.plan(problems);
  require(planned.failure(), "tune");
  if (flags.json) {
    print(json_line(heading_json(command_of(flags), *options.where.device, options.environment)) +
          "\n");
  }
  if (!flags.dry_run) return measure(tuning, *planned, flags);
  if (!flags.json) {
    print_plan(*planned, options.measuring);
    return exit_status::success;
  }
  for (const tuner::planned_problem& problem : *planned) print(json_line(to_json(problem)) + "\n");
  return exit_status::success;
}

}  // namespace

void add_tune(CLI::App& program, exit_status& status) {
  CLI::App* command =
      program.add_subcommand("tune", "Measure the rows that fit and keep the fastest");
  const auto flags = std::make_shared<tune_flags>();
  add_model_and_list_flags(*command, flags->problems);
  add_trace_flag(*command, flags->problems);
  command->add_option("--budget", flags->budget, "Begin no further problem after this long")
      ->type_name("SECONDS")
      ->check(between(0.001, 1e9));
  command->add_flag("--retune", flags->retune,
                    "Measure also what was measured before with the same code");
  command->add_flag("--accept-disturbed", flags->accept_disturbed,
                    "Decide also where other programs took a part of the machine");
  command->add_flag("--dry-run", flags->dry_run, "Say what would be measured, measure nothing");
  command
      ->add_option("--max", flags->rules.most_candidates,
                   "Rows per problem, by predicted time, beside the default (8)")
      ->type_name("N")
      ->check(between(1, 1000));
  command
      ->add_option("--min-gain", flags->rules.deciding.min_gain,
                   "Least gain that replaces the default (1.05)")
      ->type_name("FACTOR")
      ->check(between(1.0, 100.0));
  command
      ->add_option("--limit", flags->rules.limit_seconds,
                   "Silence of a row that counts as a hang (30)")
      ->type_name("SECONDS")
      ->check(between(0.1, 3600.0));
  command->add_option("--seed", flags->rules.seed, "Of inputs and of the order of rows (1)")
      ->type_name("N");
  add_tune_device_flags(*command, flags->device);
  command->add_option("--output", flags->output, "Write to this table instead of the user's")
      ->type_name("TABLE");
  add_common_flags(*command, *flags);
  command->footer(
      "A row is timed if every element of its results is what the reference row has, of whose\n"
      "results a sample is held against the definition. What is to replace the default is held\n"
      "against both on other inputs too. Bounds are those of the tests.\n"
      "With --json, stdout has one JSON object a line: a heading, the problems, a summary.\n"
      "Example:\n  tessera tune --model tools/models/qwen3-0.6b.json --budget 60\n"
      "  tessera tune --backend cuda --model tools/models/qwen3-0.6b.json --budget 60");
  command->callback([flags, &status] { status = tune(*flags); });
}

}  // namespace tessera::tool
