// One token, from the memory of one state to that of the other, which may be the same. Rows of a
// state are read and written in the order in which they lie, as memory gives them fastest:
//
//   for each row { what it has for the token's read and for its query }
//   for each row { decay; write }
//
// The second pass finds the state in the second-level cache. With S the state in front, D its
// decays, and w_i the values that are written for keys k_i, the answer q . (D S + sum of k_i w_i)
// is (D q) . S + sum of (q . k_i) w_i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Columns of a state, whole registers: rows of floats of its values.
struct lone_values {
  float* written = nullptr;  ///< values; become what is written for the key
  float* held = nullptr;     ///< becomes what the state has for the token's read
  float* answer = nullptr;   ///< becomes the answer
  std::int64_t columns = 0;
};

namespace lone {

/// Adds what Rows rows of a state have for `read` and `query`, of each its factor. Rows further on,
/// from `soon` on, are asked for.
template <class Isa, int Rows>
TESSERA_INLINE void read_rows(const state_tile<const float> rows, const float* read,
                              const float* query, const lone_values values, const float* soon) {
  using vec = prim::simd<Isa>;
  typename vec::reg reads[Rows], queries[Rows];
  TESSERA_UNROLL
  for (int r = 0; r < Rows; ++r) {
    reads[r] = vec::broadcast(read[r]);
    queries[r] = vec::broadcast(query[r]);
  }
  for (std::int64_t c = 0; c < values.columns; c += vec::width) {
    auto held = vec::load(values.held + c), answer = vec::load(values.answer + c);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_PREFETCH_L2(soon + r * rows.step + c);
      const auto x = vec::load(rows.row(r) + c);
      held = vec::fma(reads[r], x, held);
      answer = vec::fma(queries[r], x, answer);
    }
    vec::store(values.held + c, held);
    vec::store(values.answer + c, answer);
  }
}

/// Adds what a state has for a token's read and for its query.
template <class Isa>
TESSERA_INLINE void read_state(const state_tile<const float> state, const token_rows token,
                               std::int64_t channels, const lone_values values,
                               const state_tile<const float> next) {
  constexpr int together = 4;  // rows whose factors stay in registers
  constexpr std::int64_t floats_ahead = 1 << 12;
  const std::int64_t ahead = std::min(floats_ahead / values.columns, channels);
  const auto read = [&](std::int64_t channel, auto rows) {
    // Behind the last row the next state begins.
    const std::int64_t later = channel + ahead;
    const float* const soon = later + rows() <= channels ? state.row(later)
                              : next.data != nullptr
                                  ? next.row(std::max<std::int64_t>(later - channels, 0))
                                  : state.row(channel);
    read_rows<Isa, rows()>({state.row(channel), state.step}, token.read + channel,
                           token.query + channel, values, soon);
  };
  std::int64_t channel = 0;
  for (; channel + together <= channels; channel += together) {
    read(channel, std::integral_constant<int, together>{});
  }
  for (; channel < channels; ++channel) read(channel, std::integral_constant<int, 1>{});
}

/// A row decays and is written. That of the state behind it is asked for, if there is one.
template <class Isa, bool LowRank>
TESSERA_INLINE void write_row(const float* before, float* after, float decay, float key,
                              float write, const lone_values values, const float* soon) {
  using vec = prim::simd<Isa>;
  const auto decays = vec::broadcast(decay), keys = vec::broadcast(key);
  [[maybe_unused]] const auto writes = vec::broadcast(write);
  for (std::int64_t c = 0; c < values.columns; c += vec::width) {
    if (soon != nullptr) TESSERA_PREFETCH_L2(soon + c);
    auto x = vec::mul(decays, vec::load(before + c));
    if constexpr (LowRank) x = vec::fma(writes, vec::load(values.held + c), x);
    vec::store(after + c, vec::fma(keys, vec::load(values.written + c), x));
  }
}

}  // namespace lone

/// The state takes the token in, whose query becomes what reads the state in front. The rows of
/// `soon`, the state of the next token, are asked for meanwhile; null: there is none.
template <class Isa, bool LowRank>
void step_lone_token(const state_tile<const float> before, const state_tile<float> after,
                     const token_rows token, float beta, std::int64_t channels,
                     const lone_values values, const state_tile<const float> soon) {
  using vec = prim::simd<Isa>;
  auto of_key = vec::zero(), of_write = vec::zero();
  for (std::int64_t c = 0; c < channels; c += vec::width) {
    const auto query = vec::load(token.query + c);
    of_key = vec::fma(query, vec::load(token.key + c), of_key);
    if constexpr (LowRank) of_write = vec::fma(query, vec::load(token.write + c), of_write);
    vec::store(token.query + c, vec::mul(query, vec::load(token.decay + c)));
  }
  std::fill_n(values.held, values.columns, 0.0f);
  std::fill_n(values.answer, values.columns, 0.0f);
  lone::read_state<Isa>(before, token, channels, values, soon);

  const auto key_share = vec::broadcast(vec::sum(of_key));
  const auto write_share = vec::broadcast(vec::sum(of_write));
  for (std::int64_t c = 0; c < values.columns; c += vec::width) {
    const auto held = vec::load(values.held + c);
    auto written = vec::load(values.written + c), answer = vec::load(values.answer + c);
    if constexpr (LowRank) {
      answer = vec::fma(write_share, held, answer);
    } else {
      written = vec::mul(vec::broadcast(beta), vec::sub(written, held));
      vec::store(values.written + c, written);
    }
    vec::store(values.answer + c, vec::fma(key_share, written, answer));
  }
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    lone::write_row<Isa, LowRank>(before.row(channel), after.row(channel), token.decay[channel],
                                  token.key[channel], LowRank ? token.write[channel] : 0.0f, values,
                                  soon.data == nullptr ? nullptr : soon.row(channel));
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
