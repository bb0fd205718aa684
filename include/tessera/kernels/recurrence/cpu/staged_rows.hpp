// Rows of some heads of a segment's tokens, copied in the order in which they lie, token by token
// with the heads side by side, to where the rows of each head are. Read head by head they would be
// pieces a whole token apart, in pages and sets of the caches that no other piece of the head
// shares: a row would wait for memory, and the neighbours that come with it would be gone before
// their turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/ask_for.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence {

/// Tokens and heads whose rows are staged.
struct staged_part {
  std::int64_t entry = 0, token = 0, tokens = 0, head = 0, heads = 0;
};

/// Rows behind those of a head, so that heads do not share sets of the caches.
inline constexpr std::int64_t staged_gap = 1;

/// Memory of the rows of some tensors.
struct staged_memory {
  /// Of so many tokens and heads, of any type.
  void take(prim::float_carver& carver, std::int64_t tensors, std::int64_t tokens,
            std::int64_t heads, std::int64_t columns) {
    floats_of_tensor = heads * (tokens + staged_gap) * columns;
    data = carver.take(tensors * floats_of_tensor);
  }
  std::byte* of(int tensor) const {
    return reinterpret_cast<std::byte*>(data + tensor * floats_of_tensor);
  }

  float* data = nullptr;
  std::int64_t floats_of_tensor = 0;
};

/// Heads whose rows fill a page, at least 8: an item with fewer looks up each page for a part of
/// it.
constexpr double heads_of_page(std::int64_t columns) {
  return std::max(8.0, 1024.0 / static_cast<double>(std::max<std::int64_t>(columns, 1)));
}

/// Copies rows to `to` and returns them under the numbers of their tokens and heads. Absent rows
/// stay absent.
template <class Isa, class Rows>
Rows stage_rows(const Rows& from, const staged_part& part, std::int64_t columns, std::byte* to) {
  if (from.data == nullptr) return from;
  const auto size = static_cast<std::int64_t>(size_of(from.type));
  const std::int64_t row = columns * size, head = (part.tokens + staged_gap) * row;
  const auto* const data = static_cast<const std::byte*>(from.data);
  constexpr std::int64_t ahead = 4;  // tokens: as long as memory takes
  for (std::int64_t t = 0; t < part.tokens; ++t) {
    for (std::int64_t h = 0; h < part.heads; ++h) {
      const std::byte* const at =
          data + row_of(from, part.entry, part.token + t, part.head + h) * size;
      if (t + ahead < part.tokens) prim::ask_for(at + ahead * from.token * size, row);
      std::memcpy(to + h * head + t * row, at, static_cast<std::size_t>(row));
    }
  }
  Rows staged = from;
  staged.entry = 0;
  staged.token = columns;
  staged.head = head / size;
  // Where row 0 of head 0 would lie, which is nowhere.
  const std::int64_t origin = part.token * staged.token + part.head * staged.head;
  staged.data = to - origin * size;
  return staged;
}

}  // namespace tessera::kernels::recurrence
