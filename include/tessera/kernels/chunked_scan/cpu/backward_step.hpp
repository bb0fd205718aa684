// One token on the way back: its gradients, and that of the state before it.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/cpu/step.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Sums of one token that a block of value channels adds to: over all keys, and its own channels.
struct token_gradients {
  float* q = nullptr;  ///< without the scale
  float* k = nullptr;
  float* key_decay = nullptr;  ///< of the logarithms
  float* v = nullptr;
  float* value_decay = nullptr;
};

/// `gradient`, of the state `after` the token, becomes that of the state `before` it. `keys` is a
/// multiple of the register width, so that sums over the value channels of a register of keys are
/// folded together.
template <class Kernel, chunked_scan_decay Decay, state_read Read>
TESSERA_INLINE void give_back(const token_rows& token, const float* d_out, std::int64_t keys,
                              const float* before, const float* after, float* gradient,
                              const token_gradients& sums) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  constexpr int registers = shape::registers, width = shape::width;
  constexpr bool decays = Decay != chunked_scan_decay::none;
  constexpr bool value_decays = Decay == chunked_scan_decay::keys_and_values;
  const float* const seen = Read == state_read::after ? after : before;
  reg out[registers], v[registers], decay[registers], d_v[registers], d_decay[registers];
  TESSERA_UNROLL
  for (int r = 0; r < registers; ++r) {
    out[r] = vec::load(d_out + r * width);
    v[r] = vec::load(token.v + r * width);
    d_v[r] = vec::load(sums.v + r * width);
    decay[r] = value_decays ? vec::load(token.value_decay + r * width) : vec::zero();
    d_decay[r] = vec::zero();
  }
  for (std::int64_t first = 0; first < keys; first += width) {
    reg d_q[width], d_k[width], d_key_decay[width];
    for (int i = 0; i < width; ++i) {
      const std::int64_t key = first + i;
      const reg q = vec::broadcast(token.q[key]), k = vec::broadcast(token.k[key]);
      d_q[i] = d_k[i] = d_key_decay[i] = vec::zero();
      TESSERA_UNROLL
      for (int r = 0; r < registers; ++r) {
        const std::int64_t at = key * shape::block + r * width;
        reg d_state = vec::load(gradient + at);
        if constexpr (Read == state_read::after) d_state = vec::fma(q, out[r], d_state);
        d_q[i] = vec::fma(vec::load(seen + at), out[r], d_q[i]);
        d_k[i] = vec::fma(d_state, v[r], d_k[i]);
        d_v[r] = vec::fma(k, d_state, d_v[r]);
        if constexpr (decays) {
          d_state = decayed<Kernel, Decay>(d_state, token.key_decay[key], decay[r]);
          const reg part = vec::mul(d_state, vec::load(before + at));
          d_key_decay[i] = vec::add(d_key_decay[i], part);
          if constexpr (value_decays) d_decay[r] = vec::add(d_decay[r], part);
        }
        if constexpr (Read == state_read::before) d_state = vec::fma(q, out[r], d_state);
        vec::store(gradient + at, d_state);
      }
    }
    const auto add = [&](float* to, const reg(&parts)[width]) {
      vec::store(to + first, vec::add(vec::load(to + first), vec::sums(parts)));
    };
    add(sums.q, d_q);
    add(sums.k, d_k);
    if constexpr (decays) add(sums.key_decay, d_key_decay);
  }
  TESSERA_UNROLL
  for (int r = 0; r < registers; ++r) {
    vec::store(sums.v + r * width, d_v[r]);
    if constexpr (value_decays) vec::store(sums.value_decay + r * width, d_decay[r]);
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
