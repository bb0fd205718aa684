// The reference of all operations for people: generated/operations.md.
#pragma once

#include <vector>

#include "table.hpp"
#include "units.hpp"

namespace tessera::generate {

/// A section per group of operations: its axes, tensors and options.
file_set reference_page(const std::vector<family>& families);

}  // namespace tessera::generate
