// `tessera table`: looks after lookup tables.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <tessera/lookup/store.hpp>

#include "command.hpp"
#include "json.hpp"
#include "table_files.hpp"
#include "table_listing.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct table_flags : common_flags {
  std::vector<std::string> files;
  std::string output;
};

std::int64_t row_count(const std::vector<opened_table>& tables) {
  std::size_t rows = 0;
  for (const opened_table& table : tables) rows += table.table.records().size();
  return static_cast<std::int64_t>(rows);
}

exit_status stats(const table_flags& flags) {
  const std::vector<opened_table> tables = open_tables(flags.files);
  flags.json ? print_stats_json(tables) : print_stats(tables);
  return exit_status::success;
}

exit_status dump(const table_flags& flags) {
  const std::vector<opened_table> tables = open_tables(flags.files);
  if (flags.json) {
    print_dump_json(tables);
  } else if (row_count(tables) > 0) {
    print_dump(tables);
  } else {
    print_message("0 rows; looked at " + (flags.files.empty() ? places_text() : flags.files[0]));
  }
  return exit_status::success;
}

/// "user table PATH: 200 rows, sound", or what is wrong with it line by line.
void print_verdict(const opened_table& table) {
  const lookup_file_state& file = table.file();
  if (file.condition == lookup_file_condition::absent) {
    print(fmt::format("{}: {}\n", title_of(table), styled(style::dim, "absent")));
    return;
  }
  const std::string warning = warning_of(file);
  const standing_counts counts = count_standings(table.table);
  if (warning.empty()) {
    const auto rows = static_cast<std::int64_t>(table.table.records().size());
    print(fmt::format("{}: {}, {}\n", title_of(table), counted(rows, "row"),
                      styled(style::good, "sound")));
  } else {
    print(styled(style::bad, warning) + "\n");
  }
  for (std::size_t at = 1; at < file.faults.size(); ++at) {  // the first is in the warning
    print(fmt::format("  line {}: {}\n", file.faults[at].line, file.faults[at].reason));
  }
  const auto told = static_cast<std::int64_t>(file.faults.size());
  if (file.damaged > told) print(fmt::format("  and {} more lines\n", file.damaged - told));
  const auto note = [](std::int64_t count, const char* what) {
    if (count > 0) print(fmt::format("  {} of them {}\n", count, what));
  };
  note(counts.hints, "measured with other kernels: hints for tuning, no answers");
  note(counts.no_row, "for a row that this build lacks");
  note(counts.foreign, "for a family that this build lacks");
}

exit_status verify(const table_flags& flags) {
  const std::vector<opened_table> tables = open_tables(flags.files);
  std::int64_t wrong = 0;
  std::int64_t there = 0;
  for (const opened_table& table : tables) {
    wrong += warning_of(table.file()).empty() ? 0 : 1;
    there += table.file().condition == lookup_file_condition::absent ? 0 : 1;
  }
  if (flags.json) {
    print_stats_json(tables);
  } else {
    for (const opened_table& table : tables) print_verdict(table);
    print(fmt::format("{}, {}, {}\n", counted(there, "table"), counted(row_count(tables), "row"),
                      wrong == 0 ? styled(style::good, "nothing wrong")
                                 : styled(style::bad, fmt::format("{} not sound", wrong))));
  }
  return wrong == 0 ? exit_status::success : exit_status::no;
}

json::object json_of(const std::string& path, const table_rewrite& done) {
  return {{"path", path},
          {"rows_before", done.rows_before},
          {"rows_after", done.rows_after},
          {"damaged", done.damaged},
          {"bytes_before", done.bytes_before},
          {"bytes_after", done.bytes_after},
          {"quarantine",
           done.quarantine.empty() ? json::value(nullptr) : json::value(done.quarantine)}};
}

void print_rewrite(const std::string& path, const table_rewrite& done) {
  print(fmt::format("{}: {} in, {} out, {} before, {} after\n", path,
                    counted(done.rows_before, "row"), done.rows_after,
                    bytes_text(done.bytes_before), bytes_text(done.bytes_after)));
  if (done.damaged > 0) {
    print(styled(style::warning, fmt::format("  {} damaged line{} left out", done.damaged,
                                             done.damaged == 1 ? "" : "s")) +
          "\n");
  }
  if (!done.quarantine.empty()) {
    print(fmt::format("  the damaged file is kept as {}\n", done.quarantine));
  }
}

exit_status compact(const table_flags& flags) {
  std::vector<std::string> paths = flags.files;
  if (paths.empty()) {
    paths.push_back(user_table_path());
    if (!std::filesystem::exists(paths.front())) {  // nobody has tuned here
      print_message(paths.front() + ": is absent, there is nothing to compact");
      paths.clear();
    }
  }
  json::array all;
  for (const std::string& path : paths) {
    const auto done = compact_table(path);
    if (!done) throw failure(done.message());
    if (flags.json) {
      all.push_back(json_of(path, *done));
    } else {
      print_rewrite(path, *done);
    }
  }
  if (flags.json) print_json(json::object{{"files", std::move(all)}});
  return exit_status::success;
}

exit_status merge(const table_flags& flags) {
  const std::string output = flags.output.empty() ? user_table_path() : flags.output;
  const auto done = merge_tables(flags.files, output);
  if (!done) throw failure(done.message());
  flags.json ? print_json(json_of(output, *done)) : print_rewrite(output, *done);
  return exit_status::success;
}

}  // namespace

void add_table(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand(
      "table", "Looks after lookup tables: what was measured, which row won, is the file sound");
  command->require_subcommand(0, 1);
  const auto flags = std::make_shared<table_flags>();
  using action = exit_status (*)(const table_flags&);
  const auto add = [&](const char* name, const char* about, const char* files, action run,
                       const char* example) {
    CLI::App* subcommand = command->add_subcommand(name, about);
    subcommand->add_option("FILE", flags->files, files)->type_name("");
    add_common_flags(*subcommand, *flags);
    subcommand->footer(std::string("Example:\n  ") + example);
    subcommand->callback([flags, run, &status] { status = run(*flags); });
    return subcommand;
  };
  const char* const looked_at = "Lookup tables; default: every place the library looks at";
  add("stats", "The state of each table, and what it holds per family and device", looked_at,
      &stats, "tessera table stats");
  add("dump", "Every row that holds, with its evidence", looked_at, &dump,
      "tessera table dump --json");
  add("verify", "Status 1 if a line is damaged or of a newer schema", looked_at, &verify,
      "tessera table verify generated/lookup/*.txt");
  add("compact", "Keeps the last line of every key, sorted; a damaged file is copied aside first",
      "Lookup tables; default: the user's", &compact, "tessera table compact");
  CLI::App* joined =
      add("merge", "Joins tables: of the same problem and code the newest measurement holds",
          "Lookup tables to read", &merge, "tessera table merge h200.txt zen4.txt -o site.txt");
  joined->get_option("FILE")->required();
  joined
      ->add_option("-o,--output", flags->output,
                   "The table to join into, made if absent; default: the user's")
      ->type_name("OUT");
  command->callback([command] {
    if (command->get_subcommands().empty()) {
      throw failure("table: no command is given; there are stats, dump, verify, compact and merge");
    }
  });
  command->footer(
      "Example:\n  tessera table stats\n\n"
      "`tessera table COMMAND --help` shows an example of each.");
}

}  // namespace tessera::tool
