// Fills tables of pages, the lengths that say how many of them are used, and pages that are shared.
#pragma once

#include <cstddef>

#include <tessera/spec/declaration.hpp>

#include "random.hpp"

namespace tessera::support {

/// Lengths, and for each sequence pages of its own in any order; behind them anything at all.
void fill_pages(const bound_call& call, std::size_t tensor, random_source* random);

/// Pages that the sequences of each group share: none of those of their rows. They take the numbers
/// of the group's first sequence.
void fill_shared_pages(const bound_call& call, std::size_t tensor, random_source* random);

}  // namespace tessera::support
