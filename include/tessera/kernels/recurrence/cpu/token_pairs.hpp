// What the tokens of a chunk have of each other. With D_{m..n} the product of the decays of tokens
// m + 1 .. n, the weight of a value m <= n in the answer of token n is q_n . D_{m..n} k_m. Tokens
// are related in groups of four: in a group decay by decay, across groups by products of queries
// as of the beginning of their group with keys as of there. Decays are only ever multiplied, never
// divided, so nothing overflows, however fast a channel forgets.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::recurrence {

/// Rows [chunk][padded] of floats of a chunk's tokens, whole registers, zeros behind the channels.
struct chunk_pair_rows {
  const float *q = nullptr, *k = nullptr;
  const float* decay = nullptr;   ///< 1 of tokens that are not there
  float* found_q = nullptr;       ///< becomes q as of the state in front of the chunk
  float* left_k = nullptr;        ///< becomes k as of the state behind it
  float* passed_decay = nullptr;  ///< [padded] becomes the product of all decays, rounded at each
  std::int64_t padded = 0;

  const float* at(const float* rows, int token, std::int64_t c) const {
    return rows + token * padded + c;
  }
  float* at(float* rows, int token, std::int64_t c) const { return rows + token * padded + c; }
};

/// The state that a token's query reads: that behind the token, or that in front of it, which has
/// neither its decay nor its value.
enum class state_side : std::uint8_t { behind, in_front };

namespace pairs {

inline constexpr int group = 4;

/// Weights of token N of a group with those before it; its query becomes that of the beginning of
/// the group.
template <class Isa, bool Decays, state_side Side, int N>
void relate_token(const chunk_pair_rows& rows, int first, float* weights) {
  using vec = prim::simd<Isa>;
  typename vec::reg sum[N + 1];
  TESSERA_UNROLL
  for (int m = 0; m <= N; ++m) sum[m] = vec::zero();
  for (std::int64_t c = 0; c < rows.padded; c += vec::width) {
    auto q = vec::load(rows.at(rows.q, first + N, c));
    TESSERA_UNROLL
    for (int m = Side == state_side::behind ? N : N - 1; m >= 0; --m) {
      sum[m] = vec::fma(q, vec::load(rows.at(rows.k, first + m, c)), sum[m]);
      if constexpr (Decays) q = vec::mul(q, vec::load(rows.at(rows.decay, first + m, c)));
    }
    if constexpr (Decays) vec::store(rows.at(rows.found_q, first + N, c), q);
  }
  TESSERA_UNROLL
  for (int m = 0; m <= N; ++m) {
    weights[(first + N) * chunk_tokens + first + m] = vec::sum(sum[m]);
  }
}

/// Weights of the tokens of a group with those of an earlier one.
template <class Isa>
void relate_groups(const float* q, const float* k, std::int64_t padded, float* weights) {
  using vec = prim::simd<Isa>;
  constexpr int together = vec::width / group;  // queries whose sums are folded together
  for (int first = 0; first < group; first += together) {
    typename vec::reg sum[vec::width];
    TESSERA_UNROLL
    for (int i = 0; i < vec::width; ++i) sum[i] = vec::zero();
    for (std::int64_t c = 0; c < padded; c += vec::width) {
      typename vec::reg key[group];
      TESSERA_UNROLL
      for (int m = 0; m < group; ++m) key[m] = vec::load(k + m * padded + c);
      TESSERA_UNROLL
      for (int n = 0; n < together; ++n) {
        const auto query = vec::load(q + (first + n) * padded + c);
        TESSERA_UNROLL
        for (int m = 0; m < group; ++m) {
          sum[n * group + m] = vec::fma(query, key[m], sum[n * group + m]);
        }
      }
    }
    alignas(64) float folded[vec::width];
    vec::store(folded, vec::sums(sum));
    for (int n = 0; n < together; ++n) {
      std::copy_n(folded + n * group, group, weights + (first + n) * chunk_tokens);
    }
  }
}

/// Behind a group: keys so far decay through it; queries of it, if they are wanted, are those of
/// the chunk's beginning.
template <class Isa, bool HasQueries>
void pass_group(const chunk_pair_rows& rows, int first) {
  using vec = prim::simd<Isa>;
  for (std::int64_t c = 0; c < rows.padded; c += vec::width) {
    auto decay = vec::load(rows.at(rows.decay, first + group - 1, c));
    float* const last = rows.at(rows.left_k, first + group - 1, c);
    vec::store(last, vec::load(rows.at(rows.k, first + group - 1, c)));
    for (int m = group - 2; m >= 0; --m) {
      vec::store(rows.at(rows.left_k, first + m, c),
                 vec::mul(vec::load(rows.at(rows.k, first + m, c)), decay));
      decay = vec::mul(decay, vec::load(rows.at(rows.decay, first + m, c)));
    }
    if (first == 0) {
      vec::store(rows.passed_decay + c, decay);
      continue;
    }
    for (int m = 0; m < first; ++m) {
      float* const key = rows.at(rows.left_k, m, c);
      vec::store(key, vec::mul(vec::load(key), decay));
    }
    const auto before = vec::load(rows.passed_decay + c);
    for (int n = first; HasQueries && n < first + group; ++n) {
      float* const query = rows.at(rows.found_q, n, c);
      vec::store(query, vec::mul(vec::load(query), before));
    }
    vec::store(rows.passed_decay + c, vec::mul(before, decay));
  }
}

}  // namespace pairs

/// weights[n][m], m <= n, [chunk][chunk], become those of the tokens of a chunk; others are not
/// written. Without decays `found_q`, `left_k` and `passed_decay` are not either. Of queries that
/// read the state in front of their tokens, weights[n][n] are 0.
template <class Isa, bool Decays, state_side Side = state_side::behind>
void relate_chunk(const chunk_pair_rows& rows, float* weights) {
  for (int first = 0; first < chunk_tokens; first += pairs::group) {
    pairs::relate_token<Isa, Decays, Side, 0>(rows, first, weights);
    pairs::relate_token<Isa, Decays, Side, 1>(rows, first, weights);
    pairs::relate_token<Isa, Decays, Side, 2>(rows, first, weights);
    pairs::relate_token<Isa, Decays, Side, 3>(rows, first, weights);
    for (int earlier = 0; earlier < first; earlier += pairs::group) {
      pairs::relate_groups<Isa>((Decays ? rows.found_q : rows.q) + first * rows.padded,
                                (Decays ? rows.left_k : rows.k) + earlier * rows.padded,
                                rows.padded, weights + first * chunk_tokens + earlier);
    }
    if constexpr (Decays) pairs::pass_group<Isa, true>(rows, first);
  }
}

/// `left_k` and `passed_decay` alone.
template <class Isa>
void leave_keys(const chunk_pair_rows& rows) {
  for (int first = 0; first < chunk_tokens; first += pairs::group) {
    pairs::pass_group<Isa, false>(rows, first);
  }
}

}  // namespace tessera::kernels::recurrence
