#include "generator.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/support/random.hpp"

namespace tessera::replay {
namespace {

/// Mean 0, variance 1 (Box and Muller).
double normal(support::random_source& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * random.uniform());
}

/// Lengths of one distribution.
class length_source {
 public:
  length_source(const length_distribution& stated, support::random_source random)
      : stated_(stated), random_(random) {
    if (stated.kind != length_distribution::form::zipf) return;
    double sum = 0;
    for (std::int64_t rank = 1; rank <= stated.max - stated.min + 1; ++rank) {
      sum += std::pow(static_cast<double>(rank), -stated.spread);
      up_to_.push_back(sum);
    }
  }

  std::int64_t next() {
    switch (stated_.kind) {
      case length_distribution::form::constant:
        return cut(stated_.center);
      case length_distribution::form::uniform:
        return random_.between(stated_.min, stated_.max);
      case length_distribution::form::lognormal:
        return cut(stated_.center * std::exp(stated_.spread * normal(random_)));
      case length_distribution::form::zipf: {
        const double place = random_.uniform() * up_to_.back();
        const auto rank = std::ranges::upper_bound(up_to_, place) - up_to_.begin();
        return std::min(stated_.min + rank, stated_.max);
      }
    }
    return stated_.min;
  }

 private:
  std::int64_t cut(double length) const {
    const double least = static_cast<double>(stated_.min), most = static_cast<double>(stated_.max);
    return static_cast<std::int64_t>(std::floor(std::clamp(length, least, most) + 0.5));
  }

  length_distribution stated_;
  support::random_source random_;
  std::vector<double> up_to_;  ///< zipf: sums of weights
};

/// Steps between one request and the next.
double gap(const arrival_process& arrivals, support::random_source& random) {
  switch (arrivals.kind) {
    case arrival_process::form::at_once:
      return 0;
    case arrival_process::form::uniform:
      return 1 / arrivals.rate;
    case arrival_process::form::poisson:
      return -std::log(1.0 - random.uniform()) / arrivals.rate;
  }
  return 0;
}

/// The prefix of a request: two draws for each, whatever comes of them.
std::optional<common_tokens> prefix_for(const std::vector<prefix_group>& groups,
                                        support::random_source& random) {
  double place = random.uniform();
  const std::uint64_t which = random.bits();
  for (const prefix_group& group : groups) {
    if (place < group.share) {
      return common_tokens{group.first + which % static_cast<std::uint64_t>(group.count),
                           group.length};
    }
    place -= group.share;
  }
  return std::nullopt;
}

}  // namespace

std::vector<request> generated(const request_statement& stated) {
  support::random_source arrivals = support::stream(stated.seed, 1);
  length_source prompts(stated.prompt, support::stream(stated.seed, 2));
  length_source outputs(stated.output, support::stream(stated.seed, 3));
  support::random_source prefixes = support::stream(stated.seed, 4);
  std::vector<request> all;
  double clock = 0;
  for (std::int64_t n = 0; n < stated.requests; ++n) {
    request request{.arrival = clock,
                    .prompt = prompts.next(),
                    .output = outputs.next(),
                    .shared = prefix_for(stated.prefixes, prefixes)};
    if (request.shared) request.prompt += request.shared->tokens;
    all.push_back(request);
    clock += gap(stated.arrivals, arrivals);
  }
  return all;
}

}  // namespace tessera::replay
