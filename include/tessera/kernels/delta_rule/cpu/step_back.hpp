// One token on the way back: from the gradient of the state behind it to that of the state before
// it, and to those of what the step took of its token. Two passes over a tile of both.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// What a step knew of its values, rows of a tile: `held` is what the state had for `read`.
/// delta: `missing` = v - held. Low-rank updates: `missing` is v.
struct step_values {
  float* missing = nullptr;
  float* held = nullptr;
};

/// Products of two rows, added up over their registers.
template <class Isa, int Registers>
TESSERA_INLINE typename prim::simd<Isa>::reg products(const tile_row<Isa, Registers>& a,
                                                      const tile_row<Isa, Registers>& b) {
  using vec = prim::simd<Isa>;
  auto sum = vec::mul(a.part[0], b.part[0]);
  TESSERA_UNROLL
  for (int r = 1; r < Registers; ++r) sum = vec::fma(a.part[r], b.part[r], sum);
  return sum;
}
template <class Isa, int Registers>
TESSERA_INLINE float dot(const tile_row<Isa, Registers>& a, const tile_row<Isa, Registers>& b) {
  return prim::simd<Isa>::sum(products<Isa, Registers>(a, b));
}

/// The step again, from one state to the next, keeping what the way back needs.
template <class Isa, int Registers, bool LowRank>
TESSERA_INLINE void step_again(const float* before, const token_rows& token, std::int64_t channels,
                               float beta, const step_values& values, float* after) {
  using row = tile_row<Isa, Registers>;
  const row held = read_tile<Isa, Registers>({before, row::pitch}, token.read, channels);
  row written = row::load(values.missing);
  if constexpr (LowRank) {
    held.store(values.held);
  } else {
    written.add(-1.0f, held);
    written.store(values.missing);
    written.scale(beta);
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    row state = row::load(before + c * row::pitch);
    state.scale(token.decay[c]);
    if constexpr (LowRank) state.add(token.write[c], held);
    state.add(token.key[c], written);
    state.store(after + c * row::pitch);
  }
}

/// `gradient` is that of the state, `d_answer` that of the query's answer, `d_values` becomes that
/// of the values. Sums over the columns of a register of channels are folded together. Adds to the
/// rows of `d_token`; the decay's are by the factor, and `read` and
/// `key` are apart. Returns the gradient of beta.
template <class Isa, int Registers, bool LowRank>
TESSERA_INLINE float step_back(const float* before, const token_rows& token, std::int64_t channels,
                               float beta, const step_values& values, const float* d_answer,
                               float* gradient, const token_rows& d_token, float* d_values) {
  using row = tile_row<Isa, Registers>;
  const row d_out = row::load(d_answer);
  row d_written = row::zero(), d_held = row::zero();
  for (std::int64_t c = 0; c < channels; ++c) {
    row g = row::load(gradient + c * row::pitch);
    g.add(token.query[c], d_out);
    g.store(gradient + c * row::pitch);
    d_written.add(token.key[c], g);
    if constexpr (LowRank) d_held.add(token.write[c], g);
  }
  row written = row::load(values.missing), held = row::zero();
  float d_beta = 0;
  if constexpr (LowRank) {
    held = row::load(values.held);
  } else {
    d_beta = dot<Isa, Registers>(d_written, written);
    written.scale(beta);
    d_written.scale(beta);
    d_held.add(-1.0f, d_written);
  }
  d_written.store(d_values);
  const float answered = dot<Isa, Registers>(written, d_out);
  const float answered_held = LowRank ? dot<Isa, Registers>(held, d_out) : 0.0f;
  using vec = prim::simd<Isa>;
  for (std::int64_t first = 0; first < channels; first += vec::width) {
    const auto count = static_cast<int>(std::min<std::int64_t>(vec::width, channels - first));
    typename vec::reg by_query[vec::width], by_key[vec::width], by_read[vec::width],
        by_decay[vec::width], by_write[vec::width];
    for (int i = 0; i < vec::width; ++i) {
      by_query[i] = by_key[i] = by_read[i] = by_decay[i] = by_write[i] = vec::zero();
    }
    for (int i = 0; i < count; ++i) {
      const std::int64_t c = first + i;
      const row state = row::load(before + c * row::pitch);
      row g = row::load(gradient + c * row::pitch);
      by_query[i] = products<Isa, Registers>(state, d_out);
      by_key[i] = products<Isa, Registers>(g, written);
      by_read[i] = products<Isa, Registers>(state, d_held);
      by_decay[i] = products<Isa, Registers>(g, state);
      if constexpr (LowRank) by_write[i] = products<Isa, Registers>(g, held);
      g.scale(token.decay[c]);
      g.add(token.read[c], d_held);
      g.store(gradient + c * row::pitch);
    }
    const auto add = [&](float* to, typename vec::reg more) {
      vec::store(to + first, vec::add(vec::load(to + first), more));
    };
    const auto times = [&](const float* row_of, typename vec::reg by) {
      return vec::mul(vec::load(row_of + first), by);
    };
    auto d_query = vec::add(times(token.decay, vec::sums(by_query)),
                            times(token.key, vec::broadcast(answered)));
    if constexpr (LowRank) {
      d_query = vec::add(d_query, times(token.write, vec::broadcast(answered_held)));
      add(d_token.write, vec::sums(by_write));
    }
    add(d_token.query, d_query);
    add(d_token.key, vec::sums(by_key));
    add(d_token.read, vec::sums(by_read));
    add(d_token.decay, vec::sums(by_decay));
  }
  return d_beta;
}

}  // namespace tessera::kernels::delta_rule::cpu
