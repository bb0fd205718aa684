// Traces for tests.
#pragma once

#include <string>
#include <string_view>

#include "tools/replay/trace.hpp"

namespace tessera::testing {

/// A trace of these lines behind a pool and a batch.
inline replay::trace trace_of(std::string_view lines,
                              std::string_view pool = "page_size=4 pages=16",
                              std::string_view batch = "tokens=16 sequences=4") {
  std::string text = "pool ";
  text.append(pool).append("\nbatch ").append(batch).append("\n").append(lines);
  return replay::parse_trace(text, "made.txt");
}

}  // namespace tessera::testing
