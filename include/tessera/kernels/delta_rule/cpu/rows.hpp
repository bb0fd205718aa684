// Where rows of operands lie, and tiles of a state.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::delta_rule::cpu {

using prim::element_at;
using prim::load_row;
using prim::store_element;
using prim::store_row;

/// Where the row of a token and head begins, in elements.
template <class Data>
TESSERA_INLINE std::int64_t row_of(const delta_rule_rows<Data>& rows, std::int64_t entry,
                                   std::int64_t token, std::int64_t head) {
  return entry * rows.entry + token * rows.token + head * rows.head;
}

/// Columns of a state, which lie `channel` apart in memory, as a tile whose rows are whole
/// registers: zeros behind the columns.
template <class Isa>
void load_tile(const float* from, std::int64_t channel, std::int64_t channels, std::int64_t columns,
               std::int64_t pitch, float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const row = to + c * pitch;
    std::copy_n(from + c * channel, columns, row);
    std::fill(row + columns, row + pitch, 0.0f);
  }
}
template <class Isa>
void store_tile(const float* from, std::int64_t pitch, std::int64_t channels, std::int64_t columns,
                std::int64_t channel, float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    std::copy_n(from + c * pitch, columns, to + c * channel);
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
