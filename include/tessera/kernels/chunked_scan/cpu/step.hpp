// One token: a tile of a state, all keys by a block of value channels, decays and takes it in.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Rows of floats of one token: of all keys, and of the value channels of the block.
struct token_rows {
  const float* q = nullptr;  ///< times the scale
  const float* k = nullptr;
  const float* key_decay = nullptr;
  const float* v = nullptr;
  const float* value_decay = nullptr;
  float bonus = 0.0f;  ///< what the token has of its own value: q . (u k)
};

/// A register of a state, or of its gradient, after a decay.
template <class Kernel, chunked_scan_decay Decay>
TESSERA_INLINE typename traits<Kernel>::reg decayed(typename traits<Kernel>::reg state,
                                                    float of_key,
                                                    typename traits<Kernel>::reg of_values) {
  using vec = typename traits<Kernel>::vec;
  if constexpr (Decay != chunked_scan_decay::none) state = vec::mul(state, vec::broadcast(of_key));
  if constexpr (Decay == chunked_scan_decay::keys_and_values) state = vec::mul(state, of_values);
  return state;
}

/// `after` = the state behind the token, from the one `before` it, which may be the same memory;
/// `out`, if it reads one, = what the token reads.
template <class Kernel, chunked_scan_decay Decay, state_read Read>
TESSERA_INLINE void take(const token_rows& token, std::int64_t keys, const float* before,
                         float* after, float* out) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  constexpr int registers = shape::registers;
  reg v[registers], decay[registers], sum[registers];
  TESSERA_UNROLL
  for (int r = 0; r < registers; ++r) {
    v[r] = vec::load(token.v + r * shape::width);
    decay[r] = Decay == chunked_scan_decay::keys_and_values
                   ? vec::load(token.value_decay + r * shape::width)
                   : vec::zero();
    sum[r] = Read == state_read::before ? vec::mul(v[r], vec::broadcast(token.bonus)) : vec::zero();
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    const reg k = vec::broadcast(token.k[key]);
    const reg q = vec::broadcast(token.q[key]);
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) {
      const std::int64_t at = key * shape::block + r * shape::width;
      reg state = vec::load(before + at);
      if constexpr (Read == state_read::before) sum[r] = vec::fma(q, state, sum[r]);
      state = vec::fma(k, v[r], decayed<Kernel, Decay>(state, token.key_decay[key], decay[r]));
      if constexpr (Read == state_read::after) sum[r] = vec::fma(q, state, sum[r]);
      vec::store(after + at, state);
    }
  }
  if constexpr (Read != state_read::none) {
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) vec::store(out + r * shape::width, sum[r]);
  }
}

/// A token alone: the state takes it in from memory to memory, which may be the same, of rows of
/// `columns` value channels, whole registers. Rows are read and written in the order in which they
/// lie, as memory gives them fastest; what the token reads is added up in `out`.
template <class Kernel, chunked_scan_decay Decay, state_read Read>
void take_rows(const token_rows& token, std::int64_t keys, std::int64_t columns,
               const float* before, std::int64_t before_row, float* after, std::int64_t after_row,
               float* out) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  for (std::int64_t c = 0; c < columns; c += shape::width) {
    vec::store(out + c, Read == state_read::before
                            ? vec::mul(vec::load(token.v + c), vec::broadcast(token.bonus))
                            : vec::zero());
  }
  for (std::int64_t key = 0; key < keys; ++key, before += before_row, after += after_row) {
    const reg k = vec::broadcast(token.k[key]), q = vec::broadcast(token.q[key]);
    for (std::int64_t c = 0; c < columns; c += shape::width) {
      const reg found = vec::load(before + c);
      const reg of_values = Decay == chunked_scan_decay::keys_and_values
                                ? vec::load(token.value_decay + c)
                                : vec::zero();
      const reg left = vec::fma(k, vec::load(token.v + c),
                                decayed<Kernel, Decay>(found, token.key_decay[key], of_values));
      vec::store(after + c, left);
      const reg read = Read == state_read::before ? found : left;
      vec::store(out + c, vec::fma(q, read, vec::load(out + c)));
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
