// What a call returns. Errors are values: a code for programs and one sentence for people that
// names the tensor, the fact and both numbers ("k: head_dim is 96, q has 128").
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

/// What kind of refusal a status carries.
enum class status_code : std::uint8_t {
  ok,
  invalid_argument,  ///< a tensor or option contradicts another one or the operation's definition
  no_row,            ///< the request is legal, but no row of this build takes it
  ineligible_row,    ///< the row asked for by name cannot run the request
  unknown_row,       ///< the row asked for by name is not in this build
  workspace,         ///< the workspace is too small, misaligned or in use
  device,            ///< the driver or the operating system refused
  malformed,         ///< a file or text does not follow its format
  io,                ///< a file cannot be read or written
};

/// "invalid_argument", ...: stable names for logs and JSON.
constexpr std::string_view name_of(status_code code) noexcept {
  switch (code) {
    case status_code::ok:
      return "ok";
    case status_code::invalid_argument:
      return "invalid_argument";
    case status_code::no_row:
      return "no_row";
    case status_code::ineligible_row:
      return "ineligible_row";
    case status_code::unknown_row:
      return "unknown_row";
    case status_code::workspace:
      return "workspace";
    case status_code::device:
      return "device";
    case status_code::malformed:
      return "malformed";
    case status_code::io:
      return "io";
  }
  return "invalid";
}

/// Success, or a code with a message. Converts to true on success. Success allocates nothing.
class [[nodiscard]] status {
 public:
  status() = default;
  status(status_code code, std::string message) : code_(code), message_(std::move(message)) {}

  explicit operator bool() const noexcept { return code_ == status_code::ok; }
  status_code code() const noexcept { return code_; }
  /// One sentence; empty on success.
  const std::string& message() const noexcept { return message_; }

 private:
  status_code code_ = status_code::ok;
  std::string message_;
};

/// A refusal as an exception: what `throw_if_failed` and `result::value` throw.
class error : public std::runtime_error {
 public:
  explicit error(const status& failed)
      : std::runtime_error(failed.message()), code_(failed.code()) {}
  status_code code() const noexcept { return code_; }

 private:
  status_code code_;
};

/// Throws `error` unless `done` is a success: `throw_if_failed(flash_attention(args))`.
inline void throw_if_failed(const status& done) {
  if (!done) throw error(done);
}

/// A value, or the status that says why there is none. Converts to true when it holds a value.
template <class Value>
class [[nodiscard]] result {
 public:
  result(Value value) : value_(std::move(value)) {}       // NOLINT(google-explicit-constructor)
  result(status failed) : failure_(std::move(failed)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const noexcept { return value_.has_value(); }
  const status& failure() const noexcept { return failure_; }
  const std::string& message() const noexcept { return failure_.message(); }
  status_code code() const noexcept { return failure_.code(); }

  Value& operator*() & { return *value_; }
  const Value& operator*() const& { return *value_; }
  Value&& operator*() && { return *std::move(value_); }
  Value* operator->() { return &*value_; }
  const Value* operator->() const { return &*value_; }
  /// The value, or an exception of type `error`.
  Value& value() & {
    throw_if_failed(failure_);
    return *value_;
  }
  Value&& value() && {
    throw_if_failed(failure_);
    return *std::move(value_);
  }

 private:
  std::optional<Value> value_;
  status failure_;
};

}  // namespace tessera
