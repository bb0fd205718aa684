// What the tokens of a chunk write, which depends on what those before them wrote: a triangle of
// weights of pairs of keys, A(t, s) of token t with s < t, and the same on the way back.
//
//   missing_t = v_t - (what the state in front held) - sum of s < t: A(t, s) written_s
//   written_t = beta_t missing_t
//
//   d_written_s = (what the gradient has, and answers of the chunk) + sum of t > s: A(t, s) d_held_t
//   d_held_s = - beta_s d_written_s,  d_beta_s = d_written_s . missing_s
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/step_back.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// The tokens of a chunk; rows at the first column of a tile.
struct chunk_substitution {
  const float* weights;  ///< [chunk][chunk]
  const float* beta;
  float* missing;  ///< forward: what the state held becomes what is missing
  std::int64_t pitch;
};

/// Of columns of Registers.
template <class Isa, int Registers>
void find_written(const chunk_substitution& of, const float* values, float* written) {
  using row = tile_row<Isa, Registers>;
  for (int t = 0; t < recurrence::chunk_tokens; ++t) {
    const std::int64_t at = t * of.pitch;
    const float* const weight = of.weights + t * recurrence::chunk_tokens;
    row sum = row::load(values + at);
    sum.add(-1.0f, row::load(of.missing + at));
    for (int s = 0; s < t; ++s) sum.add(-weight[s], row::load(written + s * of.pitch));
    sum.store(of.missing + at);
    sum.scale(of.beta[t]);
    sum.store(written + at);
  }
}

/// `d_held` is d_written but for what later tokens held. Adds to `d_beta`.
template <class Isa, int Registers>
void find_held(const chunk_substitution& of, float* d_held, float* d_beta) {
  using row = tile_row<Isa, Registers>;
  for (int s = recurrence::chunk_tokens - 1; s >= 0; --s) {
    row sum = row::load(d_held + s * of.pitch);
    for (int t = recurrence::chunk_tokens - 1; t > s; --t) {
      sum.add(of.weights[t * recurrence::chunk_tokens + s], row::load(d_held + t * of.pitch));
    }
    d_beta[s] += dot<Isa, Registers>(sum, row::load(of.missing + s * of.pitch));
    sum.scale(-of.beta[s]);
    sum.store(d_held + s * of.pitch);
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
