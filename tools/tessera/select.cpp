// `tessera select`: the smallest set of rows that serves a trace within a stated loss.
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/tables.hpp>

#include "command.hpp"
#include "json.hpp"
#include "problem_list.hpp"
#include "table.hpp"
#include "tools/tuner/selecting.hpp"
#include "tune_device.hpp"
#include "tune_report.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct select_flags : common_flags {
  problem_flags problems;
  std::string loss = "3%";
  std::string output;
  std::string lookup;
  double budget = 0;
  tune_device_flags device;
  bool measure = false;
};

/// "3%", "3" and "0.5%" are percentages.
double loss_of(const std::string& text) {
  std::size_t end = 0;
  double percent = -1;
  try {
    percent = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string rest = text.substr(end);
  if (end > 0 && (rest.empty() || rest == "%") && percent >= 0 && percent <= 1000) {
    return percent / 100;
  }
  throw failure(fmt::format("--loss: \"{}\" is not a percentage from 0 to 1000, e.g. 3%", text));
}

void write_text(const std::string& path, const std::string& content, const char* flag) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (!file) {
    throw failure(fmt::format("{}: {} cannot be written: {}", flag, path, std::strerror(errno)));
  }
}

/// Measures what has not been measured yet.
void measure_missing(const std::vector<tuner::weighted_problem>& problems,
                     const select_flags& flags, const tune_device& device,
                     const std::string& table) {
  tuner::session_options options;
  options.table = table;
  options.where = device.conditions();
  options.budget_seconds = flags.budget;
  options.environment = device.environment();
  tuner::session tuning(options);
  const auto planned = tuning.plan(problems);
  require(planned.failure(), "select");
  tune_progress progress(flags.quiet, flags.budget);
  const tuner::session_events events{
      .begins = [&](const auto& problem, std::size_t index,
                    std::size_t total) { progress.begin(problem, index, total); },
      .measures = [&](std::string_view phase, const auto& row) { progress.measure(phase, row); },
      .ends = [&](const tuner::tuned_problem& problem) { progress.end(problem); }};
  require(tuning.run(*planned, events).failure(), table);
}

/// How many problems a row serves, and which part of the time.
struct row_share {
  std::size_t problems = 0;
  double share = 0;
};

std::vector<row_share> shares_of(const tuner::trace_times& trace,
                                 const tuner::selection_result& chosen) {
  std::vector<row_share> shares(trace.rows.size());
  for (std::size_t p = 0; p < trace.problems.size(); ++p) {
    row_share& row = shares[chosen.serves[p]];
    row.problems += 1;
    row.share += static_cast<double>(trace.problems[p].count) *
                 trace.times[p][chosen.serves[p]].seconds / chosen.found.seconds;
  }
  return shares;
}

std::string share_text(double share, int digits = 1) {
  if (!std::isfinite(share)) return "unserved";
  return fmt::format("{:.{}f}%", std::fabs(share) < 5e-6 ? 0.0 : share * 100, digits);
}

std::string kibibytes(double bytes) {
  return bytes > 0 ? fmt::format("{:.0f}", bytes / 1024) : "-";
}

std::string compile_text(double seconds) {
  return seconds > 0 ? fmt::format("{:.1f}", seconds) : "-";
}

void print_rows(const tuner::trace_times& trace, const tuner::selection_result& chosen) {
  const std::vector<row_share> shares = shares_of(trace, chosen);
  table rows({{"row"},
              {"problems", side::right},
              {"of the time", side::right},
              {"loss without it", side::right},
              {"compile s", side::right},
              {"KiB", side::right}});
  for (std::size_t i = 0; i < chosen.found.rows.size(); ++i) {
    const tuner::priced_row& row = trace.rows[chosen.found.rows[i]];
    const row_share& part = shares[chosen.found.rows[i]];
    rows.add({{row.name, style::good},
              std::to_string(part.problems),
              share_text(part.share),
              share_text(chosen.loss_without[i]),
              compile_text(row.compile_seconds),
              kibibytes(row.bytes)});
  }
  print(rows.text(terminal_width()));
}

void print_further(const tuner::trace_times& trace, const tuner::selection_result& chosen) {
  table rows({{"a further row"},
              {"buys", side::right},
              {"loss then", side::right},
              {"compile s", side::right},
              {"KiB", side::right}});
  double before = chosen.found.seconds;
  for (const tuner::further_row& step : chosen.further) {
    const tuner::priced_row& row = trace.rows[step.row];
    rows.add({row.name, share_text((before - step.seconds) / chosen.found.seconds, 2),
              share_text(step.seconds / chosen.found.best_seconds - 1, 2),
              compile_text(row.compile_seconds), kibibytes(row.bytes)});
    before = step.seconds;
  }
  if (!rows.empty()) print("\n" + rows.text(terminal_width()));
}

void print_figures(const tuner::trace_times& trace, const tuner::selection_result& chosen) {
  const tuner::cover& found = chosen.found;
  double bytes = 0;
  double seconds = 0;
  for (const std::size_t row : found.rows) {
    bytes += trace.rows[row].bytes;
    seconds += trace.rows[row].compile_seconds;
  }
  print(
      fmt::format("\n{} of the {} rows that fit serve all {} problems, {} over the best of all "
                  "rows{}; {:.0f} s to compile, "
                  "{:.0f} KiB.\n",
                  styled(style::bold, std::to_string(found.rows.size())), trace.rows.size(),
                  trace.problems.size(), share_text(found.loss(), 2),
                  found.exact ? ", the fewest possible"
                              : fmt::format(" (greedy: at least {} are needed)", found.least_rows),
                  seconds, bytes / 1024));
  print(fmt::format(
      "Times: {} measured, {} predicted{}. Chosen by predicted time alone, without a lookup table, "
      "these rows lose {}.\n",
      trace.measured, trace.predicted, trace.predicted > 0 ? " (`--measure` measures them)" : "",
      share_text(chosen.heuristic_seconds / found.best_seconds - 1, 2)));
  if (trace.fallbacks > 0) {
    print(styled(style::warning,
                 fmt::format("{} problem{} served by rows for any problem only, in this build too; "
                             "`tessera explain` names the row to add.\n",
                             trace.fallbacks, trace.fallbacks == 1 ? " is" : "s are")));
  }
}

json::object row_json(const tuner::priced_row& row) {
  return {{"row", row.name}, {"bytes", row.bytes}, {"compile_seconds", row.compile_seconds}};
}

json::object json_of(const tuner::trace_times& trace, const tuner::selection_result& chosen,
                     double loss) {
  const tuner::cover& found = chosen.found;
  const std::vector<row_share> shares = shares_of(trace, chosen);
  json::array rows;
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    json::object object = row_json(trace.rows[found.rows[i]]);
    object["problems"] = shares[found.rows[i]].problems;
    object["share"] = shares[found.rows[i]].share;
    const double without = chosen.loss_without[i];
    object["loss_without"] = std::isfinite(without) ? json::value(without) : json::value(nullptr);
    rows.push_back(std::move(object));
  }
  json::array further;
  for (const tuner::further_row& step : chosen.further) {
    json::object row = row_json(trace.rows[step.row]);
    row["loss"] = step.seconds / found.best_seconds - 1;
    further.push_back(std::move(row));
  }
  json::array problems;
  for (std::size_t p = 0; p < trace.problems.size(); ++p) {
    const tuner::row_time& time = trace.times[p][chosen.serves[p]];
    problems.push_back(json::object{
        {"problem", trace.problems[p].text},
        {"count", trace.problems[p].count},
        {"row", trace.rows[chosen.serves[p]].name},
        {"us", time.seconds * 1e6},
        {"source", time.source == tuner::time_source::measured ? "measured" : "predicted"}});
  }
  return {{"rows", std::move(rows)},
          {"further", std::move(further)},
          {"problems", std::move(problems)},
          {"loss_allowed", loss},
          {"loss", found.loss()},
          {"loss_by_predicted_time", chosen.heuristic_seconds / found.best_seconds - 1},
          {"seconds", found.seconds},
          {"best_seconds", found.best_seconds},
          {"exact", found.exact},
          {"least_rows", found.least_rows},
          {"rows_of_build", trace.rows.size()},
          {"times_measured", trace.measured},
          {"times_predicted", trace.predicted},
          {"fallbacks", trace.fallbacks}};
}

void write_files(const tuner::trace_times& trace, const tuner::selection_result& chosen,
                 double loss, const select_flags& flags, const std::string& environment) {
  if (!flags.output.empty()) {
    write_text(flags.output, row_list(trace, chosen, loss), "--output");
  }
  if (flags.lookup.empty()) return;
  std::string text(table_heading);
  text += '\n';
  for (const lookup_record& line : lookup_lines(trace, chosen, environment)) {
    text += line_of(line) + '\n';
  }
  write_text(flags.lookup, text, "--lookup");
}

exit_status select(const select_flags& flags) {
  const double loss = loss_of(flags.loss);
  const tune_device device(flags.device);
  const std::vector<tuner::weighted_problem> problems =
      read_problems(flags.problems, device.conditions());
  const table_locations where = process_table_locations();
  if (flags.measure) measure_missing(problems, flags, device, where.user);
  const tuner::measurement_log log(where.user);
  const auto tables = load_lookup_tables(where);
  const auto trace =
      tuner::times_of(problems, &tuner::open_problem, device.conditions(), log, *tables);
  require(trace.failure(), "select");
  const tuner::selection_result chosen = tuner::select_rows(*trace, loss);
  write_files(*trace, chosen, loss, flags, device.environment());
  if (flags.json) {
    print_json(json_of(*trace, chosen, loss));
    return exit_status::success;
  }
  print_rows(*trace, chosen);
  print_further(*trace, chosen);
  print_figures(*trace, chosen);
  if (!flags.output.empty()) {
    print(fmt::format("tessera_add_kernels(my_kernels ROWS {}{}) builds them.\n", flags.output,
                      flags.lookup.empty() ? "" : " LOOKUP " + flags.lookup));
  }
  return exit_status::success;
}

}  // namespace

void add_select(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("select", "The fewest rows that serve a trace");
  const auto flags = std::make_shared<select_flags>();
  add_trace_flag(*command, flags->problems);
  add_model_and_list_flags(*command, flags->problems);
  command->add_option("--loss", flags->loss, "Allowed over the best of all rows (3%)")
      ->type_name("PERCENT");
  command
      ->add_option("--output", flags->output, "Write the row list, for tessera_add_kernels(ROWS)")
      ->type_name("ROWS");
  command
      ->add_option("--lookup", flags->lookup,
                   "Write which of the rows each problem takes, for tessera_add_kernels(LOOKUP)")
      ->type_name("TABLE");
  command->add_flag("--measure", flags->measure, "First measure what was not measured yet");
  command
      ->add_option("--budget", flags->budget, "Of measuring: begin no further problem after this")
      ->type_name("SECONDS")
      ->check(between(0.001, 1e9));
  add_tune_device_flags(*command, flags->device);
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera select --trace trace.txt --loss 3% --output rows.txt --lookup "
      "rows.lookup\n\n"
      "Before it: TESSERA_RECORD=trace.txt ./my_app and tessera tune --trace trace.txt");
  command->callback([flags, &status] { status = select(*flags); });
}

}  // namespace tessera::tool
