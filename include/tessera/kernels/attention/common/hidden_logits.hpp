// Which logits are so low that GPU rows take their keys for hidden.
#pragma once

#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention {

/// The reference of rows that have seen no score, whose weights are rounded to `weights`: finite,
/// so that 2^(-inf - it) is 0 and not NaN. Logits (times log2(e)) below it count as hidden: the
/// rounding of such a reference would be a factor that weights of the type cannot have.
constexpr float nothing_seen_of(dtype weights) {
  return weights == dtype::bf16 || weights == dtype::f32 ? -0x1p31f : -0x1p27f;
}

}  // namespace tessera::kernels::attention
