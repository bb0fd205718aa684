// The numbers of a call that is timed: offsets, lengths, sizes of groups and pages, as batches have
// them. What they are follows from the declaration.
#pragma once

#include <cstdint>

#include <tessera/spec/declaration.hpp>

namespace tessera::bench {

/// How tokens are shared out among the sequences of a call.
enum class length_profile : std::uint8_t {
  equal,   ///< padded sequences and those in pages are full
  zipf,    ///< packed ones as 1, 1/2, 1/3, ... in a scattered order; others are full
  ragged,  ///< packed ones from a third to three times the mean; others from half of it to full
};

/// Fills every tensor of such numbers. Sequence n is long in each of them or short in each.
void fill_lengths(const bound_call& call, length_profile profile, std::uint64_t seed);

}  // namespace tessera::bench
