// One token, from the memory of one state to that of the other, which may be the same:
//
//   for each block of columns {
//     for each row { what it has for the token's read and for its query }
//     for each row { decay; write } }
//
// Sums of a block stay in registers. The second pass finds the state in the first-level cache, or
// the second. With S the state in front, D its decays, and w_i the values that are written for keys
// k_i, the answer q . (D S + sum of k_i w_i) is (D q) . S + sum of (q . k_i) w_i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Columns of a state, whole registers: rows of floats of its values.
struct lone_values {
  const float* written = nullptr;  ///< values
  float* answer = nullptr;         ///< becomes the answer
  std::int64_t columns = 0;
};

/// What the token writes, as its query reads it.
struct lone_shares {
  float key = 0;    ///< query . key
  float write = 0;  ///< query . write, of low-rank updates
};

namespace lone {

/// Of a block of columns: two sums for each, and a row of the state, stay in registers. Rows of 512
/// bytes are read faster than shorter ones.
template <class Isa>
inline constexpr int most_registers = prim::simd<Isa>::width >= 16 ? 8 : 4;

/// Asks for the row of a block of columns.
template <class Isa, int Registers>
TESSERA_INLINE void ask_for_row(const float* row) {
  TESSERA_UNROLL
  for (int r = 0; r < Registers; ++r) TESSERA_PREFETCH_L2(row + r * prim::simd<Isa>::width);
}

/// A block of columns of a state. Those of `soon`, the next state, are asked for beside the first
/// pass, if there is one: the second waits for the memory that it writes.
template <class Isa, int Registers, bool LowRank>
TESSERA_INLINE void step_columns(const state_tile<const float>& before,
                                 const state_tile<float>& after, const token_rows& token,
                                 std::int64_t channels, const lone_shares& shares, float beta,
                                 const lone_values& values, const state_tile<const float>& soon) {
  using row = tile_row<Isa, Registers>;
  row held = row::zero(), answer = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) {
    if (soon.data != nullptr) ask_for_row<Isa, Registers>(soon.row(c));
    const row x = row::load(before.row(c));
    held.add(token.read[c], x);
    answer.add(token.query[c], x);
  }
  row written = row::load(values.written);
  if constexpr (LowRank) {
    answer.add(shares.write, held);
  } else {
    keep_missing<Isa, Registers>(written, held, beta);
  }
  answer.add(shares.key, written);
  answer.store(values.answer);
  for (std::int64_t c = 0; c < channels; ++c) {
    row x = row::load(before.row(c));
    x.scale(token.decay[c]);
    if constexpr (LowRank) x.add(token.write[c], held);
    x.add(token.key[c], written);
    x.store(after.row(c));
  }
}

}  // namespace lone

/// The state takes the token in, whose query becomes what reads the state in front. The rows of
/// `soon`, the state of the next token (null: none), are asked for meanwhile: for states that stay
/// in their place, as of two memories requests would take the turn of what is written.
template <class Row, bool LowRank>
void step_lone_token(const state_tile<const float> before, const state_tile<float> after,
                     const token_rows token, float beta, std::int64_t channels,
                     const lone_values values, const state_tile<const float> soon) {
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  auto of_key = vec::zero(), of_write = vec::zero();
  for (std::int64_t c = 0; c < channels; c += vec::width) {
    const auto query = vec::load(token.query + c);
    of_key = vec::fma(query, vec::load(token.key + c), of_key);
    if constexpr (LowRank) of_write = vec::fma(query, vec::load(token.write + c), of_write);
    vec::store(token.query + c, vec::mul(query, vec::load(token.decay + c)));
  }
  const lone_shares shares{vec::sum(of_key), vec::sum(of_write)};
  constexpr int registers_of_block = lone::most_registers<isa_type>;
  constexpr std::int64_t most = registers_of_block * vec::width;
  for (std::int64_t column = 0; column < values.columns; column += most) {
    const std::int64_t columns = std::min(most, values.columns - column);
    const auto from = [column](auto tile) {
      if (tile.data != nullptr) tile.data += column;
      return tile;
    };
    with_registers<Row, registers_of_block>(columns, [&](auto registers) {
      lone::step_columns<isa_type, registers(), LowRank>(
          from(before), from(after), token, channels, shares, beta,
          {values.written + column, values.answer + column, columns}, from(soon));
    });
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
