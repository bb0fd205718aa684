// What every command of `tessera` shares: the common flags, the exit statuses, the error that ends
// a command, and the function each command's file defines.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include <tessera/spec/status.hpp>

namespace tessera::tool {

/// Status of the process. Nothing else is ever returned.
enum class exit_status : int {
  success = 0,
  no = 1,         ///< the answer is "no": a check failed, a row was not found
  bad_input = 2,  ///< wrong use, or a file that cannot be used
};

/// Ends a command with a message on stderr. The message names the file, tensor or flag, the fact
/// and both numbers.
class failure : public std::runtime_error {
 public:
  explicit failure(const std::string& message, exit_status status = exit_status::bad_input)
      : std::runtime_error(message), status_(status) {}
  exit_status status() const noexcept { return status_; }

 private:
  exit_status status_;
};

/// Ends a command whose output nobody reads any more: no message, success.
struct reader_left {};

/// Throws a failure that carries `subject: message` unless `done` is a success.
void require(const status& done, const std::string& subject);

/// What was asked for, or a failure of the command: a GPU that does not answer is a "no".
template <class Value>
Value value_of(result<Value> found, const std::string& subject) {
  if (!found) throw failure(subject + ": " + found.message(), exit_status::no);
  return *std::move(found);
}

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
