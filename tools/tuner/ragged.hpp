// Lengths as real batches have them: packed and padded sequences of one call are never equally
// long.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/spec/tensor_view.hpp>

#include "tests/support/random.hpp"

namespace tessera::tuner {

/// Fills `offsets` (i32, [sequences + 1]; may be absent) so that they cut `tokens` tokens into
/// sequences of unequal length: a third to three times the mean, all tokens used.
inline void cut_raggedly(const tensor_view& offsets, std::int64_t tokens, std::uint64_t seed) {
  if (!offsets.present() || offsets.extent[0] < 2) return;
  support::random_source random(seed);
  std::vector<double> shares{0};
  for (std::int64_t n = 1; n < offsets.extent[0]; ++n) {
    shares.push_back(shares.back() + std::exp(2.2 * random.uniform() - 1.1));
  }
  auto* const data = static_cast<std::int32_t*>(offsets.data);
  for (std::size_t n = 0; n < shares.size(); ++n) {
    const double end = static_cast<double>(tokens) * shares[n] / shares.back();
    data[n] = static_cast<std::int32_t>(std::llround(end));
  }
}

/// Fills `lengths` (i32, [entries]; may be absent) with lengths from half of `longest` up to it;
/// the first entry is full, as the longest of a padded batch is.
inline void draw_lengths(const tensor_view& lengths, std::int64_t longest, std::uint64_t seed) {
  if (!lengths.present()) return;
  support::random_source random(seed);
  auto* const data = static_cast<std::int32_t*>(lengths.data);
  for (std::int64_t n = 0; n < lengths.extent[0]; ++n) {
    const std::int64_t length = n == 0 ? longest : random.between((longest + 1) / 2, longest);
    data[n] = static_cast<std::int32_t>(length);
  }
}

}  // namespace tessera::tuner
