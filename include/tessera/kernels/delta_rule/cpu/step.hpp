// One token: what the state holds is read, the state decays, what is missing is written, and the
// query reads it again. Two passes over a tile [channels][Registers * width] of the state.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// A row of a tile in registers.
template <class Isa, int Registers>
struct tile_row {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int pitch = Registers * vec::width;
  reg part[Registers];

  static TESSERA_INLINE tile_row zero() {
    tile_row row;
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) row.part[r] = vec::zero();
    return row;
  }
  static TESSERA_INLINE tile_row load(const float* from) {
    tile_row row;
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) row.part[r] = vec::load(from + r * vec::width);
    return row;
  }
  TESSERA_INLINE void store(float* to) const {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) vec::store(to + r * vec::width, part[r]);
  }
  /// this += factor * other
  TESSERA_INLINE void add(float factor, const tile_row& other) {
    const reg by = vec::broadcast(factor);
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) part[r] = vec::fma(by, other.part[r], part[r]);
  }
  TESSERA_INLINE void scale(float factor) {
    const reg by = vec::broadcast(factor);
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) part[r] = vec::mul(by, part[r]);
  }
};

/// sum over channels of vector[c] * tile row c.
template <class Isa, int Registers>
TESSERA_INLINE tile_row<Isa, Registers> read_tile(const float* tile, const float* vector,
                                                  std::int64_t channels) {
  using row = tile_row<Isa, Registers>;
  row sum = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) sum.add(vector[c], row::load(tile + c * row::pitch));
  return sum;
}

/// What the delta rule writes for the token's key: beta (v - what the decayed state holds for it).
template <class Isa, int Registers>
TESSERA_INLINE tile_row<Isa, Registers> missing_values(const float* state, const token_rows& token,
                                                       std::int64_t channels, const float* values,
                                                       float beta) {
  using row = tile_row<Isa, Registers>;
  row missing = row::load(values);
  missing.add(-1.0f, read_tile<Isa, Registers>(state, token.read, channels));
  missing.scale(beta);
  return missing;
}

/// A step of a tile of the state; the query's answer goes to `answer`.
template <class Isa, int Registers>
TESSERA_INLINE void delta_step(float* state, const token_rows& token, std::int64_t channels,
                               const float* values, float beta, float* answer) {
  using row = tile_row<Isa, Registers>;
  const row written = missing_values<Isa, Registers>(state, token, channels, values, beta);
  row out = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const at = state + c * row::pitch;
    row held = row::load(at);
    held.scale(token.decay[c]);
    held.add(token.key[c], written);
    held.store(at);
    out.add(token.query[c], held);
  }
  out.store(answer);
}

/// The same of a low-rank update.
template <class Isa, int Registers>
TESSERA_INLINE void low_rank_step(float* state, const token_rows& token, std::int64_t channels,
                                  const float* values, float* answer) {
  using row = tile_row<Isa, Registers>;
  const row held_for = read_tile<Isa, Registers>(state, token.read, channels);
  const row value = row::load(values);
  row out = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const at = state + c * row::pitch;
    row held = row::load(at);
    held.scale(token.decay[c]);
    held.add(token.write[c], held_for);
    held.add(token.key[c], value);
    held.store(at);
    out.add(token.query[c], held);
  }
  out.store(answer);
}

}  // namespace tessera::kernels::delta_rule::cpu
