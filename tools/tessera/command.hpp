// What every command of `tessera` shares: the common flags, and the function each command's file
// defines.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "failure.hpp"

namespace tessera::tool {

/// Flags that every command has.
struct common_flags {
  bool json = false;   ///< stdout is one JSON document
  bool quiet = false;  ///< no progress on stderr
};

/// Adds `--json` and `--quiet`.
void add_common_flags(CLI::App& command, common_flags& flags);

/// Refuses numbers outside of the limits; the help shows the flag's own type name alone.
template <class Number>
CLI::Validator between(Number least, Number most) {
  return CLI::Range(least, most).description("");
}

/// Each adds its command to the program; the command's callback stores its exit status in `status`.
void add_list(CLI::App& program, exit_status& status);
void add_run(CLI::App& program, exit_status& status);
void add_check(CLI::App& program, exit_status& status);
void add_model(CLI::App& program, exit_status& status);
void add_replay(CLI::App& program, exit_status& status);
void add_explain(CLI::App& program, exit_status& status);
void add_doctor(CLI::App& program, exit_status& status);
void add_tune(CLI::App& program, exit_status& status);
void add_select(CLI::App& program, exit_status& status);
void add_table(CLI::App& program, exit_status& status);
void add_report(CLI::App& program, exit_status& status);

}  // namespace tessera::tool
