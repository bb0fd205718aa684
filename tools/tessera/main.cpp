// The `tessera` command: one file per command, all of them gathered here. Whatever goes wrong ends
// as one message on stderr and a status; nothing ends as a signal.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/record.hpp>
#include <tessera/version.hpp>

#include "command.hpp"
#include "terminal.hpp"

namespace tessera::tool {

void require(const status& done, const std::string& subject) {
  if (!done) throw failure(fmt::format("{}: {}", subject, done.message()));
}

void add_common_flags(CLI::App& command, common_flags& flags) {
  command.add_flag("--json", flags.json, "Print one JSON document on stdout");
  command.add_flag("--quiet", flags.quiet, "No progress on stderr");
}

namespace {

int with_message(const std::string& message, exit_status status) {
  print_message(message);
  return static_cast<int>(status);
}

/// What is set to a value that means nothing; `TESSERA_EXPLAIN` and `doctor` say it by themselves.
void warn_of_environment() {
  const environment& found = process_environment();
  if (found.explain > 0) return;
  for (const std::string& warning : found.warnings) print_message("warning: " + warning);
}

/// A first word that no command has, with those there are.
std::string unknown_command(const CLI::App& program, std::string_view word) {
  std::string names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return fmt::format("\"{}\" is not a command, there are {} (see `tessera --help`)", word, names);
}

int run_program(int argc, char** argv) {
  exit_status status = exit_status::success;
  CLI::App program(
      "Kernels of attention, recurrences and matrix products: list, run, check, measure, explain.",
      "tessera");
  program.set_version_flag("--version", fmt::format("tessera {}", version));
  program.require_subcommand(0, 1);
  program.footer("`tessera COMMAND --help` shows an example of each command.");
  program.get_formatter()->column_width(32);
  add_list(program, status);
  add_run(program, status);
  add_check(program, status);
  add_model(program, status);
  add_replay(program, status);
  add_explain(program, status);
  add_doctor(program, status);
  add_tune(program, status);
  add_select(program, status);
  add_table(program, status);
  add_report(program, status);
  for (CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == "doctor") continue;
    command->preparse_callback([](std::size_t) { warn_of_environment(); });
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    char** const word = std::find_if(argv + std::min(argc, 1), argv + argc,
                                     [](const char* given) { return given[0] != '-'; });
    if (program.get_subcommands().empty() && word != argv + argc) {
      return with_message(unknown_command(program, *word), exit_status::bad_input);
    }
    std::string command = "tessera";
    for (auto given = program.get_subcommands(); !given.empty();
         given = given.front()->get_subcommands()) {
      command += " " + given.front()->get_name();
    }
    return with_message(fmt::format("{} (see `{} --help`)", error.what(), command),
                        exit_status::bad_input);
  }
  if (program.get_subcommands().empty()) {
    return with_message("no command is given (see `tessera --help`)", exit_status::bad_input);
  }
  if (const tessera::status written = flush_recording(); !written) {
    return with_message("TESSERA_RECORD: " + written.message(), exit_status::bad_input);
  }
  return static_cast<int>(status);
}

}  // namespace
}  // namespace tessera::tool

int main(int argc, char** argv) {
  using tessera::tool::exit_status;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away is a failed write, not a signal
  try {
    return tessera::tool::run_program(argc, argv);
  } catch (const tessera::tool::reader_left&) {
    return static_cast<int>(exit_status::success);
  } catch (const tessera::tool::failure& failed) {
    return tessera::tool::with_message(failed.what(), failed.status());
  } catch (const std::bad_alloc&) {
    return tessera::tool::with_message("not enough memory for these tensors",
                                       exit_status::bad_input);
  } catch (const std::exception& failed) {
    return tessera::tool::with_message(failed.what(), exit_status::bad_input);
  } catch (...) {
    return tessera::tool::with_message("an unknown exception ended the command",
                                       exit_status::bad_input);
  }
}
