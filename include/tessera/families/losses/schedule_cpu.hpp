// How tokens and classes are cut on the CPU: kernels and cost ask here. Sizes alone decide, so that
// no bit depends on threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::losses_schedule {

/// Classes of a block: its logits stay in the first-level cache while several sums run over them.
inline constexpr std::int64_t block_classes = 2048;

/// Tokens of a work item: enough logits that taking it costs nothing.
constexpr std::int64_t rows_of_item(std::int64_t classes) noexcept {
  return std::clamp<std::int64_t>(32768 / std::max<std::int64_t>(classes, 1), 1, 64);
}

}  // namespace tessera::losses_schedule
