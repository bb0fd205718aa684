// A trace of a server: which requests come when, how long they are, what they have in common, and
// how much memory and work a step has for them. Text, one fact a line:
//
// | line | says |
// |---|---|
// | pool page_size=16 pages=1024 | pages of keys and values, and the tokens that each holds |
// | batch tokens=512 sequences=16 | most tokens of a step, most sequences under way |
// | request arrival=3 prompt=100 output=20 prefix=system:64 | one request, or many such lines |
// | generate requests=64 seed=7 | so many more, drawn by the distributions below |
// | arrivals poisson rate=0.25 | requests a step; or: uniform rate=0.25, at_once |
// | prompt lognormal median=180 sigma=0.8 min=16 max=1024 | tokens behind the prefix |
// | output uniform min=8 max=64 | likewise; other forms are below |
// | prefix system count=2 length=256 share=0.5 | prefixes, and how many begin with one |
//
// Prompts and outputs may also be `constant value=32` and `zipf exponent=1.1 min=1 max=512`. The
// clock counts steps, so that a replay does the same work wherever it runs. `prompt` of a request
// includes its prefix, of which it has the first tokens: 64 of them above. Draws that leave [min,
// max] count as its ends. What follows # is a comment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::replay {

/// Tokens of a prefix that requests have in common, by its number among the prefixes of a trace.
struct common_tokens {
  std::size_t prefix = 0;
  std::int64_t tokens = 0;

  friend bool operator==(const common_tokens&, const common_tokens&) = default;
};

struct request {
  double arrival = 0;       ///< in steps
  std::int64_t prompt = 1;  ///< tokens, those of the prefix included
  std::int64_t output = 1;  ///< tokens
  std::optional<common_tokens> shared{};

  friend bool operator==(const request&, const request&) = default;

  /// Keys that it has in the end: the last token that it generates is never read again.
  std::int64_t most_keys() const noexcept { return prompt + output - 1; }
};

/// What a step may use.
struct serving_limits {
  std::int64_t page_size = 16;
  std::int64_t pages = 0;
  std::int64_t tokens = 0;     ///< of a step
  std::int64_t sequences = 0;  ///< under way at once

  std::int64_t pages_of(std::int64_t keys) const noexcept {
    return (keys + page_size - 1) / page_size;
  }
};

struct trace {
  std::string file;
  serving_limits limits{};
  std::vector<std::string> prefixes;   ///< names
  std::vector<request> requests;       ///< in the order in which they arrive
  std::vector<std::string> statement;  ///< the lines that say how requests were drawn
};

/// Reads the text of a trace; `file` is its name. Throws tessera::error with a message that names
/// file, line, key and value.
trace parse_trace(std::string_view text, const std::string& file);

}  // namespace tessera::replay
