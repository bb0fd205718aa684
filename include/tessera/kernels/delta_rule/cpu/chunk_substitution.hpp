// What the tokens of a chunk write, which depends on what those before them wrote: a triangle of
// weights of pairs of tokens, A(t, s) of what token t reads with a key of s < t, and the same on
// the way back. The delta rule:
//
//   missing_t = v_t - (what the state in front held) - sum of s < t: A(t, s) written_s
//   written_t = beta_t missing_t
//
//   d_written_s = (what the gradient has, and answers of the chunk) + sum of t > s: A(t, s)
//   d_held_t d_held_s = - beta_s d_written_s,  d_beta_s = d_written_s . missing_s
//
// Low-rank updates, with B of the rows that write what was held:
//
//   held_t = (what the state in front has) + sum of s < t: A(t, s) v_s + B(t, s) held_s
//
//   d_held_s = (what the gradient has, ...) + sum of t > s: B(t, s) d_held_t
//   d_v_s = (what the gradient has, ...) + sum of t > s: A(t, s) d_held_t
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/step_back.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule::cpu {

using recurrence::chunk_tokens;

/// Columns of a tile, of Registers; rows of the chunk's tokens are `pitch` apart and begin at the
/// first column, weights are [chunk][chunk].
template <class Isa, int Registers>
struct chunk_substitution {
  using row = tile_row<Isa, Registers>;

  TESSERA_INLINE row load(const float* rows, int token) const {
    return row::load(rows + token * pitch);
  }
  TESSERA_INLINE void store(const row& x, float* rows, int token) const {
    x.store(rows + token * pitch);
  }
  /// x += sum of t > s: weights(t, s) rows_t
  TESSERA_INLINE void add_later(row& x, const float* weights, const float* rows, int s) const {
    for (int t = chunk_tokens - 1; t > s; --t) {
      x.add(weights[t * chunk_tokens + s], load(rows, t));
    }
  }

  /// `missing` is what the state in front held.
  void find_written(const float* weights, const float* beta, const float* values, float* missing,
                    float* written) const {
    for (int t = 0; t < chunk_tokens; ++t) {
      row x = load(values, t);
      x.add(-1.0f, load(missing, t));
      for (int s = 0; s < t; ++s) x.add(-weights[t * chunk_tokens + s], load(written, s));
      store(x, missing, t);
      x.scale(beta[t]);
      store(x, written, t);
    }
  }
  /// `d_held` is d_written but for what later tokens held. Adds to `d_beta`.
  void find_d_held(const float* weights, const float* beta, const float* missing, float* d_held,
                   float* d_beta) const {
    for (int s = chunk_tokens - 1; s >= 0; --s) {
      row x = load(d_held, s);
      add_later(x, weights, d_held, s);
      d_beta[s] += dot<Isa, Registers>(x, load(missing, s));
      x.scale(-beta[s]);
      store(x, d_held, s);
    }
  }

  /// `held` is what the state in front has.
  void find_held(const float* value_weights, const float* held_weights, const float* values,
                 float* held) const {
    for (int t = 0; t < chunk_tokens; ++t) {
      row x = load(held, t);
      for (int s = 0; s < t; ++s) {
        x.add(value_weights[t * chunk_tokens + s], load(values, s));
        x.add(held_weights[t * chunk_tokens + s], load(held, s));
      }
      store(x, held, t);
    }
  }
  /// Both are what the gradient and the answers of the chunk have.
  void find_d_values(const float* value_weights, const float* held_weights, float* d_values,
                     float* d_held) const {
    for (int s = chunk_tokens - 1; s >= 0; --s) {
      row x = load(d_held, s), value = load(d_values, s);
      add_later(x, held_weights, d_held, s);
      add_later(value, value_weights, d_held, s);
      store(x, d_held, s);
      store(value, d_values, s);
    }
  }

  std::int64_t pitch = 0;
};

}  // namespace tessera::kernels::delta_rule::cpu
