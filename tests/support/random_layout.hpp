// How generated tensors lie in memory: gaps, turned and reordered axes, broadcasting strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "guarded_tensor.hpp"
#include "random.hpp"

namespace tessera::support {

/// Strides for a tensor of `rank`. With `rows` the last axis stays innermost.
inline tensor_layout random_layout(random_source& random, int rank, bool rows, bool input) {
  tensor_layout layout;
  const int movable = rows ? rank - 1 : rank;
  if (random.chance(0.6)) {
    for (int n = movable - 1; n > 0; --n) {
      std::swap(layout.order[static_cast<std::size_t>(n)],
                layout.order[static_cast<std::size_t>(random.below(n + 1))]);
    }
  }
  for (int axis = 0; axis < rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    layout.padding[a] = static_cast<std::int8_t>(random.chance(0.5) ? random.between(0, 5) : 0);
    if (rows && axis == rank - 1) continue;
    layout.reversed[a] = random.chance(0.1);
    layout.broadcast[a] = input && random.chance(0.08);
  }
  layout.shift = static_cast<std::int8_t>(random.chance(0.5) ? random.between(0, 7) : 0);
  return layout;
}

/// Every row, along the innermost last axis, starts at a multiple of 16 bytes.
inline void align_rows(tensor_layout& layout, int rank, std::int64_t columns, std::size_t size) {
  const auto unit = static_cast<std::int64_t>(16 / size);
  auto& behind_row = layout.padding[static_cast<std::size_t>(rank - 1)];
  behind_row = static_cast<std::int8_t>((unit - columns % unit) % unit + behind_row % 2 * unit);
  layout.shift = static_cast<std::int8_t>(layout.shift % 4 * unit);
}

}  // namespace tessera::support
