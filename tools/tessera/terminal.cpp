#include "terminal.hpp"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "failure.hpp"

namespace tessera::tool {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

bool has_colour(int stream) {
  return isatty(stream) == 1 && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
}

std::string styled(style look, std::string_view text) {
  static const bool colour = has_colour(STDOUT_FILENO);
  if (!colour || look == style::plain) return std::string(text);
  const char* code = "";
  switch (look) {
    case style::plain:
      break;
    case style::bold:
      code = "1";
      break;
    case style::dim:
      code = "2";
      break;
    case style::good:
      code = "32";
      break;
    case style::bad:
      code = "1;31";
      break;
    case style::warning:
      code = "33";
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::size_t terminal_width() {
  const std::string_view columns = environment("COLUMNS");
  std::size_t width = 0;
  std::from_chars(columns.data(), columns.data() + columns.size(), width);
  if (width > 0) return width;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    return size.ws_col;
  }
  return 0;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) throw reader_left{};
    throw failure(fmt::format("stdout: {} bytes could not be written", text.size()));
  }
}

void print_fact(std::string_view name, std::string_view text) {
  print(fmt::format("  {:<12} {}\n", name, text));
}

void print_message(std::string_view message) {
  const bool colour = has_colour(STDERR_FILENO);
  fmt::print(stderr, "{}tessera:{} {}\n", colour ? "\x1b[1m" : "", colour ? "\x1b[0m" : "",
             message);
}

progress::progress(bool quiet, std::size_t steps)
    : quiet_(quiet), in_place_(has_colour(STDERR_FILENO)), steps_(steps) {}

progress::~progress() {
  erase();
}

void progress::step(std::string_view what) {
  ++done_;
  if (quiet_) return;
  if (!in_place_) {
    fmt::print(stderr, "[{}/{}] {}\n", done_, steps_, what);
    return;
  }
  constexpr std::size_t cells = 20;
  const std::size_t full = steps_ == 0 ? cells : (done_ - 1) * cells / steps_;
  erase();
  fmt::print(stderr, "[{:=<{}}{: <{}}] {}/{} {}", "", full, "", cells - full, done_, steps_,
             what.substr(0, 60));
  std::fflush(stderr);
}

void progress::erase() const {
  if (quiet_ || !in_place_ || done_ == 0) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace tessera::tool
