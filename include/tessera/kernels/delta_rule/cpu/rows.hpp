// Where rows of operands lie, and tiles of a state; silu of a row.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::delta_rule::cpu {

using prim::element_at;
using prim::load_row;
using prim::store_element;
using prim::store_row;

/// Columns [column, column + columns) of the states of a head: in memory rows of `channels`, as a
/// tile rows of whole registers, as few as hold them, with zeros behind.
struct tile_place {
  std::int64_t slot = 0, head = 0, column = 0;
  std::int64_t channels = 0, columns = 0, pitch = 0;
};
/// Null states are 0.
template <class Isa>
void load_tile(const delta_rule_states<const void>& from, const tile_place& at, float* to) {
  if (from.data == nullptr) {
    std::fill_n(to, at.channels * at.pitch, 0.0f);
    return;
  }
  prim::with_elements<Isa>(from, [&](const auto* elements) {
    const auto* row = elements + at.slot * from.sequence + at.head * from.head + at.column;
    for (std::int64_t c = 0; c < at.channels; ++c) {
      load_row<Isa>(row + c * from.channel, at.columns, to + c * at.pitch);
    }
  });
}
template <class Isa>
void store_tile(const float* from, const tile_place& at, const delta_rule_states<void>& to) {
  prim::with_elements<Isa>(to, [&](auto* elements) {
    auto* row = elements + at.slot * to.sequence + at.head * to.head + at.column;
    for (std::int64_t c = 0; c < at.channels; ++c) {
      store_row<Isa>(row + c * to.channel, at.columns, from + c * at.pitch);
    }
  });
}

/// x becomes silu(x), up to a whole register.
template <class Isa>
void activate(float* row, std::int64_t count) {
  using vec = prim::simd<Isa>;
  for (std::int64_t c = 0; c < count; c += vec::width) {
    vec::store(row + c, prim::silu_of<Isa>(vec::load(row + c)).value);
  }
}
/// The gradient of x from that of silu(x).
template <class Isa>
void activate_back(const float* x, std::int64_t count, float* d_row) {
  using vec = prim::simd<Isa>;
  for (std::int64_t c = 0; c < count; c += vec::width) {
    const auto slope = prim::silu_of<Isa>(vec::load(x + c)).slope;
    vec::store(d_row + c, vec::mul(slope, vec::load(d_row + c)));
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
