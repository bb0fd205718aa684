// A few tokens at once: a tile of a state is read and written once for all of them.
//
// With D_n the decay of token n in front of its update, S the state that the group finds, and
// D_{m..n} the product of D_{m+1} .. D_n, token n of a group reads
//
//   q_n (D_{0..n} S) + sum over m <= n of (q_n . D_{m..n} k_m) v_m
//
// and the group leaves D_{0..N} S + sum over m of (D_{m..N} k_m) v_m. Decays are at most 1 and are
// only ever multiplied, so nothing overflows, however long they are. A token that reads the state
// it finds is D_{n} behind, and has its own value through the bonus instead of q . k.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/cpu/step.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Tokens of a group, and registers of value channels that go through the tile together: as many
/// sums, and where registers are few values, as the registers of the back end hold.
template <class Kernel>
inline constexpr int group_tokens = traits<Kernel>::width == 16 ? 4 : 2;
template <class Kernel>
inline constexpr int group_registers = traits<Kernel>::width == 16 ? 4 : 2;

/// Rows of floats of a group's tokens, `padded` apart those of keys, a block apart those of values.
/// Memory that the group may write.
struct group_rows {
  float *q = nullptr, *k = nullptr, *key_decay = nullptr;
  const float *v = nullptr, *value_decay = nullptr;
  std::int64_t padded = 0;
  const float* bonus = nullptr;  ///< of each token that reads the state it finds
};

/// What the tokens of a group have of each other's values: share[n][m] of token m's.
template <class Kernel>
struct group_shares {
  float share[group_tokens<Kernel>][group_tokens<Kernel>];
};

/// Queries become those of the state that the group finds, keys those of the state it leaves, the
/// last token's decay that of the whole group.
template <class Kernel, chunked_scan_decay Decay, state_read Read>
TESSERA_INLINE group_shares<Kernel> relate(const group_rows& rows, std::int64_t keys) {
  static_assert(Read == state_read::after || Decay != chunked_scan_decay::keys_and_values);
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  constexpr int count = group_tokens<Kernel>;
  constexpr bool decays = Decay != chunked_scan_decay::none;
  constexpr int own = Read == state_read::before ? 1 : 0;  // first reader behind a token
  reg share[count][count];
  TESSERA_UNROLL
  for (int n = 0; n < count; ++n) {
    TESSERA_UNROLL
    for (int m = 0; m < count; ++m) share[n][m] = vec::zero();
  }
  for (std::int64_t key = 0; key < keys; key += shape::width) {
    reg q[count], decay[count];
    TESSERA_UNROLL
    for (int n = 0; n < count; ++n) {
      q[n] = vec::load(rows.q + n * rows.padded + key);
      if constexpr (decays) decay[n] = vec::load(rows.key_decay + n * rows.padded + key);
    }
    TESSERA_UNROLL
    for (int m = 0; m < count; ++m) {
      reg k = vec::load(rows.k + m * rows.padded + key);
      TESSERA_UNROLL
      for (int n = m; n < count; ++n) {
        if (decays && own == 0 && n > m) k = vec::mul(k, decay[n]);
        if (n >= m + own) share[n][m] = vec::fma(q[n], k, share[n][m]);
        if (decays && own == 1 && n > m) k = vec::mul(k, decay[n]);
      }
      if constexpr (decays) vec::store(rows.k + m * rows.padded + key, k);
    }
    if constexpr (decays) {
      reg since = decay[0];
      TESSERA_UNROLL
      for (int n = 0; n < count; ++n) {
        // Behind n decays if it reads what it leaves, n - 1 if what it finds.
        if (n > own) since = vec::mul(since, decay[n - own]);
        if (n >= own) vec::store(rows.q + n * rows.padded + key, vec::mul(q[n], since));
      }
      if constexpr (own == 1) since = vec::mul(since, decay[count - 1]);
      vec::store(rows.key_decay + (count - 1) * rows.padded + key, since);
    }
  }
  group_shares<Kernel> shares{};
  TESSERA_UNROLL
  for (int n = 0; n < count; ++n) {
    for (int m = 0; m <= n - own; ++m) shares.share[n][m] = vec::sum(share[n][m]);
    if constexpr (own == 1) shares.share[n][n] = rows.bonus[n];
  }
  return shares;
}

/// Registers [first, first + group_registers) of the block: the tile `state` takes the group in,
/// and `out`, a block for each token, is what they read. `rows` are related.
template <class Kernel, chunked_scan_decay Decay>
TESSERA_INLINE void take_columns(const group_rows& rows, const group_shares<Kernel>& shares,
                                 std::int64_t keys, int first, float* state, float* out) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  constexpr int count = group_tokens<Kernel>, registers = group_registers<Kernel>;
  constexpr bool values_decay = Decay == chunked_scan_decay::keys_and_values;
  const std::int64_t column = first * shape::width;

  reg written[count][registers], sum[count][registers], since[registers];
  TESSERA_UNROLL
  for (int m = 0; m < count; ++m) {
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) {
      const std::int64_t at = column + r * shape::width;
      written[m][r] = vec::load(rows.v + m * shape::block + at);
      sum[m][r] = vec::zero();
      if constexpr (values_decay) {
        const reg decay = vec::load(rows.value_decay + m * shape::block + at);
        since[r] = m == 0 ? decay : vec::mul(since[r], decay);
        for (int earlier = 0; earlier < m; ++earlier) {
          written[earlier][r] = vec::mul(written[earlier][r], decay);
        }
      }
    }
  }

  const float* const group_decay = rows.key_decay + (count - 1) * rows.padded;
  for (std::int64_t key = 0; key < keys; ++key) {
    float* const at = state + key * shape::block + column;
    reg held[registers];
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) held[r] = vec::load(at + r * shape::width);
    TESSERA_UNROLL
    for (int n = 0; n < count; ++n) {
      const reg q = vec::broadcast(rows.q[n * rows.padded + key]);
      TESSERA_UNROLL
      for (int r = 0; r < registers; ++r) sum[n][r] = vec::fma(q, held[r], sum[n][r]);
    }
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) {
      if constexpr (Decay != chunked_scan_decay::none) {
        held[r] = vec::mul(held[r], vec::broadcast(group_decay[key]));
      }
      if constexpr (values_decay) held[r] = vec::mul(held[r], since[r]);
    }
    TESSERA_UNROLL
    for (int m = 0; m < count; ++m) {
      const reg k = vec::broadcast(rows.k[m * rows.padded + key]);
      TESSERA_UNROLL
      for (int r = 0; r < registers; ++r) held[r] = vec::fma(k, written[m][r], held[r]);
    }
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) vec::store(at + r * shape::width, held[r]);
  }

  // Values once more, each decayed as far as its reader.
  TESSERA_UNROLL
  for (int r = 0; r < registers; ++r) {
    const std::int64_t at = column + r * shape::width;
    reg value[count], since_found = vec::zero();
    TESSERA_UNROLL
    for (int n = 0; n < count; ++n) {
      value[n] = vec::load(rows.v + n * shape::block + at);
      reg answer = sum[n][r];
      if constexpr (values_decay) {
        const reg decay = vec::load(rows.value_decay + n * shape::block + at);
        since_found = n == 0 ? decay : vec::mul(since_found, decay);
        for (int m = 0; m < n; ++m) value[m] = vec::mul(value[m], decay);
        answer = vec::mul(answer, since_found);
      }
      for (int m = 0; m <= n; ++m) {
        answer = vec::fma(vec::broadcast(shares.share[n][m]), value[m], answer);
      }
      vec::store(out + n * shape::block + at, answer);
    }
  }
}

/// `state` takes related tokens in; `out` is what they read, a block each.
template <class Kernel, chunked_scan_decay Decay>
TESSERA_INLINE void take_group(const group_rows& rows, const group_shares<Kernel>& shares,
                               std::int64_t keys, float* state, float* out) {
  for (int first = 0; first < traits<Kernel>::registers; first += group_registers<Kernel>) {
    take_columns<Kernel, Decay>(rows, shares, keys, first, state, out);
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
