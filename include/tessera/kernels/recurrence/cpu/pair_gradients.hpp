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
// forgets. A row that reads the state in front of its token has n - 1 for n, and m < n.
#pragma once

#include <cstdint>

#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::recurrence {

/// Rows [chunk][padded] of the tokens of a chunk: `Readers` rows of a token read states, the last
/// of them that of `LastSide`, others that behind the token, and `Keys` rows write values.
template <int Readers, int Keys = 1, state_side LastSide = state_side::behind>
struct chunk_gradient_rows {
  const float* reads[Readers];
  const float* keys[Keys];
  const float* decay;
  const float* d_weights[Readers][Keys];  ///< [chunk][chunk]: of pairs of tokens
  const float* crossing;    ///< [padded]: what the state in front has to do with what follows
  float* d_reads[Readers];  ///< what the state in front has; becomes whole, the first times scale
  float* d_keys[Keys];      ///< what the gradient behind has; becomes whole
  float* d_decay;           ///< becomes the gradients of log decays
  float* crossed;           ///< scratch of a register for each token
  std::int64_t padded;

  static constexpr bool is_in_front(int reader) {
    return LastSide == state_side::in_front && reader == Readers - 1;
  }
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
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers, int Keys, state_side Side>
TESSERA_INLINE void give_back_states(const chunk_gradient_rows<Readers, Keys, Side>& rows,
                                     const channel_rows<Isa>& at) {
  using vec = prim::simd<Isa>;
  if constexpr (Decays && Wanted != chunk_gradients::keys) {
    auto before = vec::broadcast(1.0f);
    for (int n = 0; n < chunk_tokens; ++n) {
      const auto behind = vec::mul(before, at.load(rows.decay, n));
      TESSERA_UNROLL
      for (int r = 0; r < Readers; ++r) {
        const auto factor = rows.is_in_front(r) ? before : behind;
        at.store(rows.d_reads[r], n, vec::mul(at.load(rows.d_reads[r], n), factor));
      }
      before = behind;
    }
  }
  if constexpr (Decays && Wanted != chunk_gradients::queries) {
    auto factor = vec::broadcast(1.0f);
    for (int m = chunk_tokens - 1; m >= 0; --m) {
      TESSERA_UNROLL
      for (int w = 0; w < Keys; ++w) {
        at.store(rows.d_keys[w], m, vec::mul(at.load(rows.d_keys[w], m), factor));
      }
      factor = vec::mul(factor, at.load(rows.decay, m));
    }
  }
  if constexpr (Wanted == chunk_gradients::all) {
    auto sum = vec::load(rows.crossing + at.channel);
    const auto add_readers = [&](int n, bool in_front) {
      TESSERA_UNROLL
      for (int r = 0; r < Readers; ++r) {
        if (rows.is_in_front(r) != in_front) continue;
        sum = vec::fma(at.load(rows.reads[r], n), at.load(rows.d_reads[r], n), sum);
      }
    };
    for (int n = chunk_tokens - 1; n >= 0; --n) {
      add_readers(n, false);
      at.store(rows.d_decay, n, sum);
      add_readers(n, true);
    }
    sum = vec::zero();
    for (int m = 0; m < chunk_tokens; ++m) {
      at.store(rows.d_decay, m, vec::add(at.load(rows.d_decay, m), sum));
      TESSERA_UNROLL
      for (int w = 0; w < Keys; ++w) {
        sum = vec::fma(at.load(rows.keys[w], m), at.load(rows.d_keys[w], m), sum);
      }
    }
  }
}

/// The pairs of token m with those behind it.
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers, int Keys, state_side Side>
TESSERA_INLINE void give_back_pairs(const chunk_gradient_rows<Readers, Keys, Side>& rows,
                                    const channel_rows<Isa>& at, int m) {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  constexpr int width = vec::width;
  reg key[Keys], d_key[Keys];
  TESSERA_UNROLL
  for (int w = 0; w < Keys; ++w) {
    key[w] = at.load(rows.keys[w], m);
    d_key[w] = vec::zero();
  }
  // What reader r of token n has to do with the keys; returns its part of what crosses decays: of
  // one key without the key.
  const auto relate = [&](int r, int n, reg factor) {
    auto crosses = vec::zero();
    reg read = factor;
    if constexpr (Wanted != chunk_gradients::queries) {
      read = vec::mul(factor, at.load(rows.reads[r], n));
    }
    auto d_read = vec::zero();
    TESSERA_UNROLL
    for (int w = 0; w < Keys; ++w) {
      const auto weight = vec::broadcast(rows.d_weights[r][w][n * chunk_tokens + m]);
      if constexpr (Wanted != chunk_gradients::keys) d_read = vec::fma(weight, key[w], d_read);
      if constexpr (Wanted != chunk_gradients::queries) {
        const auto part = vec::mul(weight, read);
        d_key[w] = vec::add(d_key[w], part);
        crosses = Keys == 1 ? part : vec::fma(part, key[w], crosses);
      }
    }
    if constexpr (Wanted != chunk_gradients::keys) {
      at.store(rows.d_reads[r], n, vec::fma(factor, d_read, at.load(rows.d_reads[r], n)));
    }
    return crosses;
  };
  auto factor = vec::broadcast(1.0f), crosses = vec::zero();
  for (int n = m; n < chunk_tokens; ++n) {
    if constexpr (Side == state_side::in_front) {
      // Crosses the decays of tokens before its own.
      if (n > m) crosses = vec::add(crosses, relate(Readers - 1, n, factor));
    }
    if constexpr (Wanted == chunk_gradients::all) {
      if (n > m) vec::store(rows.crossed + (n - 1) * width, crosses);
    }
    if (Decays && n > m) factor = vec::mul(factor, at.load(rows.decay, n));
    crosses = vec::zero();
    TESSERA_UNROLL
    for (int r = 0; r < Readers; ++r) {
      if (!rows.is_in_front(r)) crosses = vec::add(crosses, relate(r, n, factor));
    }
  }
  if constexpr (Wanted != chunk_gradients::queries) {
    TESSERA_UNROLL
    for (int w = 0; w < Keys; ++w) {
      at.store(rows.d_keys[w], m, vec::add(at.load(rows.d_keys[w], m), d_key[w]));
    }
  }
  if constexpr (Wanted == chunk_gradients::all) {
    auto sum = crosses;
    for (int n = chunk_tokens - 1; n > m; --n) {
      const auto d_decay = at.load(rows.d_decay, n);
      at.store(rows.d_decay, n,
               Keys == 1 ? vec::fma(sum, key[0], d_decay) : vec::add(sum, d_decay));
      if (n - 1 > m) sum = vec::add(sum, vec::load(rows.crossed + (n - 1) * width));
    }
  }
}

}  // namespace pairs

/// The gradients of a chunk's rows and log decays from what states and the gradient had for them.
template <class Isa, bool Decays, chunk_gradients Wanted, int Readers, int Keys, state_side Side>
void give_back_tokens(const chunk_gradient_rows<Readers, Keys, Side>& rows, float scale) {
  using vec = prim::simd<Isa>;
  for (std::int64_t channel = 0; channel < rows.padded; channel += vec::width) {
    const pairs::channel_rows<Isa> at{rows.padded, channel};
    pairs::give_back_states<Isa, Decays, Wanted>(rows, at);
    for (int m = chunk_tokens - 1; m >= 0; --m) {
      pairs::give_back_pairs<Isa, Decays, Wanted>(rows, at, m);
    }
    for (int n = 0; Wanted != chunk_gradients::keys && n < chunk_tokens; ++n) {
      at.store(rows.d_reads[0], n, vec::mul(at.load(rows.d_reads[0], n), vec::broadcast(scale)));
    }
  }
}

}  // namespace tessera::kernels::recurrence
