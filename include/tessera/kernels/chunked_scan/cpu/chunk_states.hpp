// States in the tiles that chunks of tokens meet, and the tensors they come from and go to.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Calls body(first column, its columns) for each tile of a state.
template <class Kernel, class Body>
void for_each_column_tile(std::int64_t columns, const Body& body) {
  constexpr std::int64_t most = chunk_extents<Kernel>::tile_columns;
  for (std::int64_t first = 0; first < columns; first += most) {
    body(first, std::min(columns - first, most));
  }
}

/// The states of a sequence.
template <class Kernel>
class chunk_states {
 public:
  chunk_states(const chunked_scan_kernel_args& args, const chunk_extents<Kernel>& size,
               const recurrence::sequence& one)
      : keys_(args.keys), values_(args.values), size_(size), sequence_(one.number) {}

  /// As [K][values]; zeros where there is none.
  void load(const chunked_scan_states& from, std::int64_t head, float* to) const {
    std::fill_n(to, size_.state, 0.0f);
    for_each_row(from, head, [&](float* state, std::int64_t at, std::int64_t count) {
      std::copy_n(state, count, to + at);
    });
  }
  void store(const float* from, std::int64_t head, const chunked_scan_states& to) const {
    for_each_row(to, head, [&](float* state, std::int64_t at, std::int64_t count) {
      std::copy_n(from + at, count, state);
    });
  }
  /// As [V][keys]; zeros where there is none.
  void load_turned(const chunked_scan_states& from, std::int64_t head, float* to) const {
    std::fill_n(to, size_.turned_state, 0.0f);
    if (from.data == nullptr) return;
    const float* const state = from.data + sequence_ * from.sequence + head * from.head;
    for_each_column_tile<Kernel>(size_.keys, [&](std::int64_t first, std::int64_t columns) {
      float* const tile = to + first * values_;
      const std::int64_t count = std::min(keys_ - first, columns);
      for (std::int64_t key = 0; key < count; ++key) {
        const float* const row = state + (first + key) * from.key;
        for (std::int64_t value = 0; value < values_; ++value) {
          tile[value * columns + key] = row[value];
        }
      }
    });
  }

 private:
  /// Calls body(row of the tensor, where that of the tile begins, values that the tensor has).
  template <class Body>
  void for_each_row(const chunked_scan_states& states, std::int64_t head, const Body& body) const {
    if (states.data == nullptr) return;
    float* const state = states.data + sequence_ * states.sequence + head * states.head;
    for_each_column_tile<Kernel>(size_.values, [&](std::int64_t first, std::int64_t columns) {
      for (std::int64_t key = 0; key < keys_; ++key) {
        body(state + key * states.key + first, first * keys_ + key * columns,
             std::min(values_ - first, columns));
      }
    });
  }

  std::int64_t keys_, values_;
  const chunk_extents<Kernel>& size_;
  std::int64_t sequence_;
};

}  // namespace tessera::kernels::chunked_scan::cpu
