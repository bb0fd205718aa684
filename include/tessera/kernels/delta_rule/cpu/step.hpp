// One token: what the state holds is read, the state decays, what is missing is written, and the
// query reads it again. The second pass over a tile [channels][Registers * width] of the state is
// the first one of the next token.
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

/// A tile of a state where it lies: rows of channels, `step` floats apart.
template <class Float>
struct state_tile {
  Float* data = nullptr;
  std::int64_t step = 0;
  TESSERA_INLINE Float* row(std::int64_t channel) const { return data + channel * step; }
};

/// sum over channels of vector[c] * tile row c.
template <class Isa, int Registers>
TESSERA_INLINE tile_row<Isa, Registers> read_tile(const state_tile<const float>& tile,
                                                  const float* vector, std::int64_t channels) {
  using row = tile_row<Isa, Registers>;
  row sum = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) sum.add(vector[c], row::load(tile.row(c)));
  return sum;
}

/// Turns the values of a token into what the delta rule writes for its key: beta (v - what the
/// decayed state holds for it).
template <class Isa, int Registers>
TESSERA_INLINE void keep_missing(tile_row<Isa, Registers>& values,
                                 const tile_row<Isa, Registers>& held, float beta) {
  values.add(-1.0f, held);
  values.scale(beta);
}

/// What a step reads of the state behind it.
template <class Isa, int Registers>
struct step_answers {
  tile_row<Isa, Registers> query;  ///< for the token's query
  tile_row<Isa, Registers> next;   ///< for what the next token reads with
};

/// The state decays and takes a token in: `values` for its key and, of low-rank updates, `held`,
/// what it had for the token, for its `write`. The next token reads in the same pass, if there is
/// one.
template <class Isa, int Registers, bool LowRank, bool HasNext>
TESSERA_INLINE step_answers<Isa, Registers> step_tile(const state_tile<float>& tile,
                                                      const token_rows& token,
                                                      std::int64_t channels,
                                                      const tile_row<Isa, Registers>& values,
                                                      const tile_row<Isa, Registers>& held,
                                                      const float* next) {
  using row = tile_row<Isa, Registers>;
  step_answers<Isa, Registers> answers{row::zero(), row::zero()};
  for (std::int64_t c = 0; c < channels; ++c) {
    row x = row::load(tile.row(c));
    x.scale(token.decay[c]);
    if constexpr (LowRank) x.add(token.write[c], held);
    x.add(token.key[c], values);
    x.store(tile.row(c));
    answers.query.add(token.query[c], x);
    if constexpr (HasNext) answers.next.add(next[c], x);
  }
  return answers;
}

}  // namespace tessera::kernels::delta_rule::cpu
