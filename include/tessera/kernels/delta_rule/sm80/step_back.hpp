// One token on the way back: from the gradient of the state behind it to that of the state before
// it, and to those of what the step took of its token.
#pragma once

#include <tessera/kernels/delta_rule/sm80/step.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::put_channels;

/// What a step knew of the thread's columns (`step_state`), and the gradient of its answer.
template <class Shape>
struct known_columns {
  column_values<Shape> missing, held, d_out;
};

/// The gradient of the state takes that of the answer; `d_written` and `d_held` become those of
/// what went to the key and to `write`.
template <class Shape, bool LowRank>
__device__ __forceinline__ void take_answer_back(state_tile<Shape>& gradient,
                                                 const token_rows& token,
                                                 const thread_place<Shape>& mine,
                                                 const column_values<Shape>& d_out,
                                                 column_values<Shape>& d_written,
                                                 column_values<Shape>& d_held) {
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) d_written[j] = d_held[j] = 0.0f;
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float query[4], key[4], write[4];
    load_quad(query, token.query + c);
    load_quad(key, token.key + c);
    if constexpr (LowRank) load_quad(write, token.write + c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        const float x = fmaf(query[i], d_out[j], gradient.at[g * 4 + i][j]);
        gradient.at[g * 4 + i][j] = x;
        d_written[j] = fmaf(key[i], x, d_written[j]);
        if constexpr (LowRank) d_held[j] = fmaf(write[i], x, d_held[j]);
      }
    }
  }
  add_over_channels<Shape>(d_written);
  if constexpr (LowRank) add_over_channels<Shape>(d_held);
}

/// `before` is the state in front of the step, in memory of the launch. The rows' gradients of the
/// warp's columns go to `warp_rows`: that of the decay is by the factor, and `read` and `key` are
/// apart. `d_values` becomes the gradient of the values. Returns the gradient of beta of the
/// thread's columns.
template <class Shape, bool LowRank>
__device__ __forceinline__ float step_back(const float* before, const token_rows& token,
                                           const thread_place<Shape>& mine,
                                           const known_columns<Shape>& known, float beta,
                                           state_tile<Shape>& gradient, const token_rows& warp_rows,
                                           column_values<Shape>& d_values) {
  column_values<Shape> d_held, written;
  take_answer_back<Shape, LowRank>(gradient, token, mine, known.d_out, d_values, d_held);
  float d_beta = 0.0f, answered = 0.0f, answered_held = 0.0f;
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) {
    if constexpr (LowRank) {
      written[j] = known.missing[j];
      answered_held = fmaf(known.held[j], known.d_out[j], answered_held);
    } else {
      d_beta = fmaf(d_values[j], known.missing[j], d_beta);
      written[j] = beta * known.missing[j];
      d_values[j] *= beta;
      d_held[j] = -d_values[j];
    }
    answered = fmaf(written[j], known.d_out[j], answered);
  }
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float key[4], decay[4], write[4], read[4];
    load_quad(key, token.key + c);
    load_quad(decay, token.decay + c);
    if constexpr (LowRank) {
      load_quad(write, token.write + c);
      load_quad(read, token.read + c);
    }
    float state[4][Shape::columns_of_thread];
#pragma unroll
    for (int i = 0; i < 4 * Shape::columns_of_thread; ++i) {
      const int at = g * 4 * Shape::columns_of_thread + i;
      state[i / Shape::columns_of_thread][i % Shape::columns_of_thread] =
          before[at * Shape::threads + static_cast<int>(threadIdx.x)];
    }
    float d_query[4], d_key[4], d_decay[4], d_read[4], d_write[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float held_out = 0.0f;
      d_key[i] = d_decay[i] = d_read[i] = d_write[i] = 0.0f;
      if constexpr (!LowRank) read[i] = decay[i] * key[i];
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        const float s = state[i][j];
        float& x = gradient.at[g * 4 + i][j];
        held_out = fmaf(s, known.d_out[j], held_out);
        d_key[i] = fmaf(x, written[j], d_key[i]);
        d_decay[i] = fmaf(x, s, d_decay[i]);
        d_read[i] = fmaf(s, d_held[j], d_read[i]);
        if constexpr (LowRank) d_write[i] = fmaf(x, known.held[j], d_write[i]);
        x = fmaf(read[i], d_held[j], decay[i] * x);
      }
      d_query[i] = fmaf(decay[i], held_out, key[i] * answered);
      if constexpr (LowRank) d_query[i] = fmaf(write[i], answered_held, d_query[i]);
    }
    put_channels<Shape>(d_query, mine, g, warp_rows.query);
    put_channels<Shape>(d_key, mine, g, warp_rows.key);
    put_channels<Shape>(d_decay, mine, g, warp_rows.decay);
    put_channels<Shape>(d_read, mine, g, warp_rows.read);
    if constexpr (LowRank) put_channels<Shape>(d_write, mine, g, warp_rows.write);
  }
  return d_beta;
}

}  // namespace tessera::kernels::delta_rule::sm80
