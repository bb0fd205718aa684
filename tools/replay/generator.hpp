// Draws the requests of a trace from the distributions that it states. The same statement gives the
// same requests on every machine and standard library: a generator and formulas of our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace.hpp"

namespace tessera::replay {

/// How many tokens. Whole numbers from `min` to `max`; what is drawn outside counts as the end.
struct length_distribution {
  enum class form : std::uint8_t { constant, uniform, lognormal, zipf };

  form kind = form::constant;
  double center = 1;  ///< of constant its value, of lognormal its median
  double spread = 0;  ///< of lognormal sigma, of zipf the exponent
  std::int64_t min = 1;
  std::int64_t max = 1;
};

/// When requests come.
struct arrival_process {
  enum class form : std::uint8_t { at_once, uniform, poisson };

  form kind = form::at_once;
  double rate = 1;  ///< requests a step
};

/// Prefixes of one length, numbers `first` to `first + count - 1` of the trace. A request has one
/// of them, each as likely, with probability `share`.
struct prefix_group {
  std::size_t first = 0;
  std::int64_t count = 1;
  std::int64_t length = 1;
  double share = 1;
};

/// What a trace states of its requests.
struct request_statement {
  std::int64_t requests = 0;
  std::uint64_t seed = 0;
  arrival_process arrivals{};
  length_distribution prompt{}, output{};
  std::vector<prefix_group> prefixes;
};

/// The requests, in the order in which they arrive. Arrivals, prompts, outputs and prefixes are
/// drawn from streams of their own: another distribution of one leaves the others as they were.
std::vector<request> generated(const request_statement& stated);

}  // namespace tessera::replay
