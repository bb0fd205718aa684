// One token of a tile of the state: what the state holds is read, the state decays and is written,
// and the query reads it again.
#pragma once

#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::add_over_channels;
using recurrence::sm80::column_values;
using recurrence::sm80::load_quad;
using recurrence::sm80::state_tile;
using recurrence::sm80::thread_place;

/// What the state has for the vector that the step reads with.
template <class Shape, bool LowRank>
__device__ __forceinline__ void read_state(const state_tile<Shape>& state, const token_rows& token,
                                           const thread_place<Shape>& mine,
                                           column_values<Shape>& held) {
#pragma unroll
  for (float& x : held) x = 0.0f;
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float read[4];
    if constexpr (LowRank) {
      load_quad(read, token.read + c);
    } else {
      float decay[4];
      load_quad(read, token.key + c);
      load_quad(decay, token.decay + c);
#pragma unroll
      for (int i = 0; i < 4; ++i) read[i] *= decay[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        held[j] = fmaf(read[i], state.at[g * 4 + i][j], held[j]);
      }
    }
  }
  add_over_channels<Shape>(held);
}

/// The state behind the step. `written` goes to the key, `held` to `write`; `answer` becomes the
/// thread's share of what the query reads.
template <class Shape, bool LowRank>
__device__ __forceinline__ void write_state(state_tile<Shape>& state, const token_rows& token,
                                            const thread_place<Shape>& mine,
                                            const column_values<Shape>& written,
                                            const column_values<Shape>& held,
                                            column_values<Shape>& answer) {
#pragma unroll
  for (float& x : answer) x = 0.0f;
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float query[4], key[4], decay[4], write[4];
    load_quad(query, token.query + c);
    load_quad(key, token.key + c);
    load_quad(decay, token.decay + c);
    if constexpr (LowRank) load_quad(write, token.write + c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        float x = state.at[g * 4 + i][j] * decay[i];
        if constexpr (LowRank) x = fmaf(write[i], held[j], x);
        x = fmaf(key[i], written[j], x);
        state.at[g * 4 + i][j] = x;
        answer[j] = fmaf(query[i], x, answer[j]);
      }
    }
  }
}

/// A step. `missing` becomes what the way back needs to know of it: delta: v - held; low-rank
/// updates: v.
template <class Shape, bool LowRank>
__device__ __forceinline__ void step_state(state_tile<Shape>& state, const token_rows& token,
                                           const thread_place<Shape>& mine, const float* values,
                                           float beta, column_values<Shape>& held,
                                           column_values<Shape>& missing,
                                           column_values<Shape>& answer) {
  read_state<Shape, LowRank>(state, token, mine, held);
  column_values<Shape> written;
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) {
    missing[j] = values[mine.column + j] - (LowRank ? 0.0f : held[j]);
    written[j] = LowRank ? missing[j] : beta * missing[j];
  }
  write_state<Shape, LowRank>(state, token, mine, written, held, answer);
}

}  // namespace tessera::kernels::delta_rule::sm80
