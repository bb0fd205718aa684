// Where output goes: colours, width and progress exist only on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::tool {

enum class style { plain, bold, dim, good, bad, warning };

/// True if the stream (1 stdout, 2 stderr) is a terminal that takes colours. `NO_COLOR` and
/// `TERM=dumb` switch them off.
bool has_colour(int stream);

/// `text` in a style, or as it is where stdout has no colour.
std::string styled(style look, std::string_view text);

/// Columns of the terminal on stdout; 0 (no limit) if stdout is none and `COLUMNS` is not set.
std::size_t terminal_width();

/// Writes to stdout. A failure to write ends the command; quietly if the reader went away.
void print(std::string_view text);

/// "  name         text": a line of a report.
void print_fact(std::string_view name, std::string_view text);

/// One line on stderr: "tessera: " and the message.
void print_message(std::string_view message);

/// Shows on stderr what is being done: one line that is overwritten on a terminal, one line per
/// step elsewhere, nothing if quiet.
class progress {
 public:
  progress(bool quiet, std::size_t steps);
  ~progress();
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// The next step begins.
  void step(std::string_view what);

 private:
  void erase() const;

  bool quiet_;
  bool in_place_;
  std::size_t steps_;
  std::size_t done_ = 0;
};

}  // namespace tessera::tool
