// Whether two tensors of millions of elements are alike: support::compare, block by block.
#pragma once

#include <tessera/spec/tensor_view.hpp>

#include "tests/support/compare.hpp"

namespace tessera::tuner {

/// As support::compare of all elements. Both are row-major, without gaps, and of one shape; a few
/// threads share them.
support::comparison compare_tensors(const tensor_view& ours, const tensor_view& theirs,
                                    support::error_scale scale);

}  // namespace tessera::tuner
