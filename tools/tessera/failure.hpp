// How a command ends: the exit statuses, and the error that carries a message.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

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

}  // namespace tessera::tool
