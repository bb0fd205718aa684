// `tessera report`: one page from bench and tune results.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/version.hpp>

#include "command.hpp"
#include "json.hpp"
#include "report/load.hpp"
#include "report/numbers.hpp"
#include "report/page.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

struct report_flags : common_flags {
  std::vector<std::string> files;
  std::string output;
  std::string title = "Tessera: measured";
};

/// A page must not replace what it is made from.
void check_output(const report_flags& flags) {
  for (const std::string& file : flags.files) {
    std::error_code differs;
    if (fs::equivalent(file, flags.output, differs)) {
      throw failure(fmt::format("-o: {} is also one of the {} files to read", flags.output,
                                flags.files.size()));
    }
  }
}

void write_page(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) throw failure(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  file.write(page.data(), static_cast<std::streamsize>(page.size()));
  file.close();
  if (!file) {
    throw failure(fmt::format("{}: {} bytes could not be written: {}", path, page.size(),
                              std::strerror(errno)));
  }
}

/// The command as it could be typed again.
std::string command_of(const report_flags& flags) {
  std::string text = "tessera report";
  for (const std::string& file : flags.files) text += " " + file;
  return text + " -o " + flags.output;
}

std::size_t cases_in(const report::input& from) {
  std::size_t cases = 0;
  for (const report::bench_run& run : from.runs) cases += run.cases.size();
  return cases;
}

void print_result(const report::input& from, const std::string& page, const report_flags& flags) {
  if (!flags.json) {
    for (const std::string& note : from.notes) print_message(note);
    print(fmt::format("{}: {} bytes; {}, {}, {}, {}\n", flags.output, page.size(),
                      report::counted(cases_in(from), "bench case"),
                      report::counted(from.replays.size(), "replay"),
                      report::counted(from.problems.size(), "measured problem"),
                      report::counted(from.rows.size(), "row")));
    return;
  }
  json::array files;
  for (const report::source& source : from.sources) {
    files.push_back(
        json::object{{"path", source.path},
                     {"kind", source.kind},
                     {"contents", source.contents},
                     {"bytes", source.bytes},
                     {"bad_lines", json::array(source.bad_lines.begin(), source.bad_lines.end())}});
  }
  print_json(json::object{{"output", flags.output},
                          {"bytes", page.size()},
                          {"cases", cases_in(from)},
                          {"replays", from.replays.size()},
                          {"problems", from.problems.size()},
                          {"rows", from.rows.size()},
                          {"files", std::move(files)},
                          {"notes", json::array(from.notes.begin(), from.notes.end())}});
}

exit_status make_report(const report_flags& flags) {
  check_output(flags);
  report::input from = report::load(flags.files);
  report::add_build_rows(from);
  const std::string page = report::page_of(
      from, {.title = flags.title, .command = command_of(flags), .version = std::string(version)});
  write_page(flags.output, page);
  print_result(from, page, flags);
  return exit_status::success;
}

}  // namespace

void add_report(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("report", "One page from bench and tune results");
  const auto flags = std::make_shared<report_flags>();
  command
      ->add_option("FILE", flags->files,
                   "Bench records, `tune --json` results, `replay --json`, lookup tables, "
                   "generated/cost/*.txt, `doctor --json`")
      ->required()
      ->type_name("");
  command->add_option("-o,--output", flags->output, "The page, one HTML file that needs no other")
      ->required()
      ->type_name("OUT.html");
  command->add_option("--title", flags->title, "Heading of the page")->type_name("TEXT");
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera report build/bench/*.json -o report.html\n"
      "  tessera report build/bench/*.json tune.jsonl generated/lookup/*.txt -o report.html");
  command->callback([flags, &status] { status = make_report(*flags); });
}

}  // namespace tessera::tool
