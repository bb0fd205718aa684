// The order of a race, who drops out and when it is over: numbers only, no measuring.
#pragma once

#include <cstddef>
#include <vector>

#include "measure.hpp"

namespace tessera::tuner {

/// Indices into `rows` of those still in the race.
std::vector<std::size_t> running(const std::vector<measured_row>& rows);

/// The running row with the lowest median; no_row if none has samples.
std::size_t leader_of(const std::vector<measured_row>& rows, const measuring_rules& rules);

/// Marks rows as abandoned that are slower than the leader by more than the factor and the noise.
/// `default_row` (an index into `rows`, or no_row) stays: it is what the leader is compared with.
void abandon_slow(std::vector<measured_row>& rows, std::size_t default_row,
                  const measuring_rules& rules);

/// True if another round would hardly change the answer: medians are known well enough, or every
/// row's distance to the leader is far beyond its error.
bool is_settled(const std::vector<measured_row>& rows, std::size_t default_row,
                const measuring_rules& rules);

}  // namespace tessera::tuner
