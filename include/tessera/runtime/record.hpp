// Traces: which problems a program asks for, and how often.
//
// A trace is a text file: one problem a line in problem text, with the number of calls at its end.
// The same problem may come in several lines, their counts add up. `#` at the start of a line makes
// it a comment.
//
//   flash_attention q=[1,1,32,128]bf16 k=[1,4096,8,128] # count=812
//
// TESSERA_RECORD=<file> records a process: at its end, and whenever flush_recording() is called,
// the counts since the last time are appended in one write, so that several processes may share a
// file. Problems that differ only in what no choice depends on (scales, seeds) count as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/spec/status.hpp>

namespace tessera {

struct trace_line {
  std::string problem;  ///< problem text, first word the operation; empty for a comment
  std::int64_t count = 1;
};

/// Reads a line without its break. Refuses a count that is not a positive number, and what follows
/// it; the problem itself is for the family's `parse` to judge.
result<trace_line> parse_trace_line(std::string_view line);

/// The line that parse_trace_line reads back.
std::string line_of(const trace_line& line);

/// Starts recording to a file, or stops with an empty name; wins over TESSERA_RECORD. What was
/// counted so far is written to the file it was counted for.
status record_to(const std::string& path);

/// Appends what was counted since the last time. Fails with `io` if the file cannot be written; the
/// counts are kept then.
status flush_recording();

/// Stops recording and forgets what was not written.
void discard_recording() noexcept;

/// The file that is being recorded to; empty: none.
std::string recording_file();

}  // namespace tessera
