// The hook of a tuner. The library never measures: a program that links a tuner hands it over in
// context.tuner and allows it by policy.autotune; then a problem without a measured row is given to
// the tuner before the cost model decides.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tessera {

/// What there is to measure. The views are valid during the call only.
struct autotune_request {
  std::string_view family;          ///< "attention"
  std::string_view problem;         ///< problem text, with the operation's name
  std::string_view device_class;    ///< see key.hpp
  std::string_view identity, size;  ///< key text, as in a lookup record
  std::string_view code_version;
  std::string_view default_row;  ///< what the cost model would take
  std::string_view hint;         ///< row of a stale table line: worth trying first; may be empty
  std::span<const std::string_view> rows;  ///< every row that fits, in the order of their names
  int threads = 1;
};

/// What was found.
struct autotune_answer {
  std::size_t row = 0;    ///< index into `rows`
  double median_us = 0;   ///< of that row; more than 0
  double default_us = 0;  ///< of the default row in the same session; 0: not measured
};

/// Measures and answers, or returns false to decline. May take seconds; runs on the thread of the
/// call; must not call an operation with this tuner in its context.
struct autotuner {
  bool (*tune)(void* state, const autotune_request& asked,
               autotune_answer& answer) noexcept = nullptr;
  void* state = nullptr;
};

}  // namespace tessera
