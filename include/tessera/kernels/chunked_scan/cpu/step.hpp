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
};

/// `after` = the state behind the token, from the one `before` it, which may be the same memory;
/// `out` = what the token reads of it.
template <class Kernel, chunked_scan_decay Decay>
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
    if constexpr (Decay == chunked_scan_decay::keys_and_values) {
      decay[r] = vec::load(token.value_decay + r * shape::width);
    }
    sum[r] = vec::zero();
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    const reg k = vec::broadcast(token.k[key]);
    const reg q = vec::broadcast(token.q[key]);
    TESSERA_UNROLL
    for (int r = 0; r < registers; ++r) {
      const std::int64_t at = key * shape::block + r * shape::width;
      reg state = vec::load(before + at);
      if constexpr (Decay != chunked_scan_decay::none) {
        state = vec::mul(state, vec::broadcast(token.key_decay[key]));
      }
      if constexpr (Decay == chunked_scan_decay::keys_and_values) state = vec::mul(state, decay[r]);
      state = vec::fma(k, v[r], state);
      sum[r] = vec::fma(q, state, sum[r]);
      vec::store(after + at, state);
    }
  }
  TESSERA_UNROLL
  for (int r = 0; r < registers; ++r) vec::store(out + r * shape::width, sum[r]);
}

}  // namespace tessera::kernels::chunked_scan::cpu
