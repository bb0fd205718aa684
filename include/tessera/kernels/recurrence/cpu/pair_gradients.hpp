// What the tokens of a chunk owe each other on the way back. With D_{m..n} the product of the
// decays of tokens m + 1 .. n, d_n the gradient of what a row q_n of token n read, and everything
// of one channel:
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

#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::recurrence {

/// Rows [chunk][padded] of the tokens of a chunk. `Readers` rows of a token read the state behind
/// it: its query, and in the delta rule its key, which does not meet itself.
template <int Readers>
struct chunk_gradient_rows {
  const float* reads[Readers];
  const float *k, *decay;
  const float* d_weights[Readers];  ///< [chunk][chunk]: of pairs of tokens
  const float* crossing;  ///< [padded]: what the state in front has to do with what follows
  float* d_reads[Readers];  ///< what the state in front has; becomes whole, of queries times scale
  float* d_k;               ///< what the gradient behind has; becomes whole
  float* d_decay;           ///< becomes the gradients of log decays
  float* crossed;           ///< scratch of a register for each token
  std::int64_t padded;
};

/// What is wanted of a pass over a chunk.
enum class chunk_gradients : std::uint8_t {
  queries,
  keys,
  all,  ///< and gradients of log decays
};

namespace pairs {

/// A register of channels of a chunk.
template <class Isa>
struct channel_rows {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;

  TESSERA_INLINE reg load(const float* rows, int token) const {
    return vec::load(rows + token * padded + channel);
  }
  TESSERA_INLINE void store(float* rows, int token, reg x) const {
    vec::store(rows + token * padded + channel, x);
  }
  std::int64_t padded = 0, channel = 0;
};

/// What states have becomes gradients of the tokens, and `d_decay` begins the gradients of log
/// decays.
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers>
TESSERA_INLINE void give_back_states(const chunk_gradient_rows<Readers>& rows,
                                     const channel_rows<Isa>& at) {
  using vec = prim::simd<Isa>;
  if constexpr (Decays && Wanted != chunk_gradients::keys) {
    auto factor = vec::load(rows.decay + at.channel);
    for (int n = 0; n < chunk_tokens; ++n) {
      TESSERA_UNROLL
      for (int r = 0; r < Readers; ++r) {
        at.store(rows.d_reads[r], n, vec::mul(at.load(rows.d_reads[r], n), factor));
      }
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
      TESSERA_UNROLL
      for (int r = 0; r < Readers; ++r) {
        sum = vec::fma(at.load(rows.reads[r], n), at.load(rows.d_reads[r], n), sum);
      }
      at.store(rows.d_decay, n, sum);
    }
    sum = vec::zero();
    for (int m = 0; m < chunk_tokens; ++m) {
      at.store(rows.d_decay, m, vec::add(at.load(rows.d_decay, m), sum));
      sum = vec::fma(at.load(rows.k, m), at.load(rows.d_k, m), sum);
    }
  }
}

/// The pairs of token m with those behind it.
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers>
TESSERA_INLINE void give_back_pairs(const chunk_gradient_rows<Readers>& rows,
                                    const channel_rows<Isa>& at, int m) {
  using vec = prim::simd<Isa>;
  constexpr int width = vec::width;
  const auto k = at.load(rows.k, m);
  auto factor = vec::broadcast(1.0f), d_k = vec::zero();
  for (int n = m; n < chunk_tokens; ++n) {
    if (Decays && n > m) factor = vec::mul(factor, at.load(rows.decay, n));
    auto part = vec::zero();
    TESSERA_UNROLL
    for (int r = 0; r < Readers; ++r) {
      const auto weight =
          vec::mul(factor, vec::broadcast(rows.d_weights[r][n * chunk_tokens + m]));
      if constexpr (Wanted != chunk_gradients::keys) {
        at.store(rows.d_reads[r], n, vec::fma(weight, k, at.load(rows.d_reads[r], n)));
      }
      if constexpr (Wanted != chunk_gradients::queries) {
        const auto read = at.load(rows.reads[r], n);
        part = r == 0 ? vec::mul(weight, read) : vec::fma(weight, read, part);
      }
    }
    if constexpr (Wanted != chunk_gradients::queries) {
      d_k = vec::add(d_k, part);
      if constexpr (Wanted == chunk_gradients::all) vec::store(rows.crossed + n * width, part);
    }
  }
  if constexpr (Wanted != chunk_gradients::queries) {
    at.store(rows.d_k, m, vec::add(at.load(rows.d_k, m), d_k));
  }
  if constexpr (Wanted == chunk_gradients::all) {
    auto sum = vec::zero();
    for (int n = chunk_tokens - 1; n > m; --n) {
      sum = vec::add(sum, vec::load(rows.crossed + n * width));
      at.store(rows.d_decay, n, vec::fma(sum, k, at.load(rows.d_decay, n)));
    }
  }
}

}  // namespace pairs

/// The gradients of a chunk's rows and log decays from what states and the gradient had for them.
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers>
void give_back_tokens(const chunk_gradient_rows<Readers>& rows, float scale) {
  using vec = prim::simd<Isa>;
  for (std::int64_t channel = 0; channel < rows.padded; channel += vec::width) {
    const pairs::channel_rows<Isa> at{rows.padded, channel};
    pairs::give_back_states<Isa, Decays, Wanted>(rows, at);
    for (int m = chunk_tokens - 1; m >= 0; --m) {
      pairs::give_back_pairs<Isa, Decays, Wanted>(rows, at, m);
    }
    for (int n = 0; Wanted != chunk_gradients::keys && n < chunk_tokens; ++n) {
      at.store(rows.d_reads[0], n,
               vec::mul(at.load(rows.d_reads[0], n), vec::broadcast(scale)));
    }
  }
}

}  // namespace tessera::kernels::recurrence
