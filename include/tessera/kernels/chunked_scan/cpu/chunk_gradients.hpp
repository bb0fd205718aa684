// What the tokens of a chunk owe each other on the way back. With D_{m..n} the product of the
// decays of tokens m + 1 .. n, d_n the gradient of what n read, and everything of one channel:
//
//   d_q_n = (what the state in front has for d_n) D_{0..n} + sum of m <= n: (d_n . v_m) D_{m..n}
//   k_m d_k_m = (what the gradient behind has for v_m) D_{m..N} + sum of n >= m: (d_n . v_m)
//   D_{m..n} q_n
//
// and the gradient of the log decay of token t is all that crosses it: from the state in front to
// tokens n >= t and to what follows the chunk, and from tokens m < t to tokens n >= t and to what
// follows. Sums take up what crosses and drop nothing, so that nothing cancels where a channel
// forgets.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// A register of channels of a chunk; rows are `padded` apart.
template <class Kernel>
struct channel_rows {
  using vec = typename traits<Kernel>::vec;
  using reg = typename traits<Kernel>::reg;

  TESSERA_INLINE reg load(const float* rows, int token) const {
    return vec::load(rows + token * padded + channel);
  }
  TESSERA_INLINE void store(float* rows, int token, reg x) const {
    vec::store(rows + token * padded + channel, x);
  }
  std::int64_t padded = 0, channel = 0;
};

/// What is wanted of a pass over a chunk.
enum class chunk_gradients : std::uint8_t {
  queries,
  keys,
  all,  ///< and gradients of log decays
};

/// What states have becomes gradients of the tokens, and `d_decay` begins the gradients of log
/// decays.
template <class Kernel, bool Decays, chunk_gradients Wanted>
TESSERA_INLINE void give_back_states(const chunk_rows& rows, const channel_rows<Kernel>& at,
                                     float* d_decay) {
  using vec = typename traits<Kernel>::vec;
  if constexpr (Decays && Wanted != chunk_gradients::keys) {
    auto factor = vec::load(rows.decay + at.channel);
    for (int n = 0; n < chunk_tokens; ++n) {
      at.store(rows.d_q, n, vec::mul(at.load(rows.d_q, n), factor));
      if (n + 1 < chunk_tokens) factor = vec::mul(factor, at.load(rows.decay, n + 1));
    }
  }
  if constexpr (Decays && Wanted != chunk_gradients::queries) {
    auto factor = vec::broadcast(1.0f);
    for (int m = chunk_tokens - 1; m >= 0; --m) {
      at.store(rows.d_k, m, vec::mul(at.load(rows.d_k, m), factor));
      factor = vec::mul(factor, at.load(rows.decay, m));
    }
  }
  if constexpr (Wanted == chunk_gradients::all) {
    auto sum = vec::load(rows.crossing + at.channel);
    for (int n = chunk_tokens - 1; n >= 0; --n) {
      sum = vec::fma(at.load(rows.q, n), at.load(rows.d_q, n), sum);
      at.store(d_decay, n, sum);
    }
    sum = vec::zero();
    for (int m = 0; m < chunk_tokens; ++m) {
      at.store(d_decay, m, vec::add(at.load(d_decay, m), sum));
      sum = vec::fma(at.load(rows.k, m), at.load(rows.d_k, m), sum);
    }
  }
}

/// The pairs of token m with those behind it. `crossed` is a register for each token.
template <class Kernel, bool Decays, chunk_gradients Wanted>
TESSERA_INLINE void give_back_pairs(const chunk_rows& rows, const channel_rows<Kernel>& at, int m,
                                    float* d_decay, float* crossed) {
  using vec = typename traits<Kernel>::vec;
  constexpr int width = traits<Kernel>::width;
  const auto k = at.load(rows.k, m);
  auto factor = vec::broadcast(1.0f), d_k = vec::zero();
  for (int n = m; n < chunk_tokens; ++n) {
    if (Decays && n > m) factor = vec::mul(factor, at.load(rows.decay, n));
    const auto weight = vec::mul(factor, vec::broadcast(rows.d_weights[n * chunk_tokens + m]));
    if constexpr (Wanted != chunk_gradients::keys) {
      at.store(rows.d_q, n, vec::fma(weight, k, at.load(rows.d_q, n)));
    }
    if constexpr (Wanted != chunk_gradients::queries) {
      const auto part = vec::mul(weight, at.load(rows.q, n));
      d_k = vec::add(d_k, part);
      if constexpr (Wanted == chunk_gradients::all) vec::store(crossed + n * width, part);
    }
  }
  if constexpr (Wanted != chunk_gradients::queries) {
    at.store(rows.d_k, m, vec::add(at.load(rows.d_k, m), d_k));
  }
  if constexpr (Wanted == chunk_gradients::all) {
    auto sum = vec::zero();
    for (int n = chunk_tokens - 1; n > m; --n) {
      sum = vec::add(sum, vec::load(crossed + n * width));
      at.store(d_decay, n, vec::fma(sum, k, at.load(d_decay, n)));
    }
  }
}

/// d_q and d_k of a chunk, which are what states have, become whole, d_q times `scale`; `d_decay`
/// [chunk][keys] the gradients of log decays. `crossed` is scratch of a register for each token.
template <class Kernel, bool Decays, chunk_gradients Wanted>
void give_back_tokens(const chunk_rows& rows, std::int64_t keys, float scale, float* d_decay,
                      float* crossed) {
  using vec = typename traits<Kernel>::vec;
  for (std::int64_t channel = 0; channel < keys; channel += traits<Kernel>::width) {
    const channel_rows<Kernel> at{keys, channel};
    give_back_states<Kernel, Decays, Wanted>(rows, at, d_decay);
    for (int m = chunk_tokens - 1; m >= 0; --m) {
      give_back_pairs<Kernel, Decays, Wanted>(rows, at, m, d_decay, crossed);
    }
    for (int n = 0; Wanted != chunk_gradients::keys && n < chunk_tokens; ++n) {
      at.store(rows.d_q, n, vec::mul(at.load(rows.d_q, n), vec::broadcast(scale)));
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
