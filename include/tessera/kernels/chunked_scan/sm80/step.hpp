// One token of a tile of the state: the state decays, takes the token in and is read; and the way
// back.
#pragma once

#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::add_over_channels;
using recurrence::sm80::load_quad;
using recurrence::sm80::put_channels;

/// What a step takes of the thread's columns.
template <class Shape>
struct taken_columns {
  column_values<Shape> value, decay;  ///< of value_decays: factors
  float bonus = 0.0f;
};

/// The state behind the step; `answer` becomes the thread's share of what the query reads, without
/// the bonus.
template <class Shape, scan_kind Kind>
__device__ __forceinline__ void step_state(state_tile<Shape>& state, const token_rows& token,
                                           const thread_place<Shape>& mine,
                                           const taken_columns<Shape>& columns,
                                           column_values<Shape>& answer) {
#pragma unroll
  for (float& x : answer) x = 0.0f;
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float query[4], key[4], decay[4];
    load_quad(query, token.query + c);
    load_quad(key, token.key + c);
    load_quad(decay, token.decay + c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        float& x = state.at[g * 4 + i][j];
        if constexpr (Kind == scan_kind::bonus) answer[j] = fmaf(query[i], x, answer[j]);
        x *= decay[i];
        if constexpr (Kind == scan_kind::value_decays) x *= columns.decay[j];
        x = fmaf(key[i], columns.value[j], x);
        if constexpr (Kind != scan_kind::bonus) answer[j] = fmaf(query[i], x, answer[j]);
      }
    }
  }
}

/// `gradient`, of the state behind the token, becomes that of the state `before` it, which is in
/// memory of the launch. The rows' gradients of the warp's columns go to `warp_rows`; `d_value` and
/// `d_value_decay`, of its logarithm, become those of the columns.
template <class Shape, scan_kind Kind>
__device__ __forceinline__ void step_back(const float* before, const token_rows& token,
                                          const float* u, const thread_place<Shape>& mine,
                                          const taken_columns<Shape>& columns,
                                          const column_values<Shape>& d_out,
                                          state_tile<Shape>& gradient, const token_rows& warp_rows,
                                          column_values<Shape>& d_value,
                                          column_values<Shape>& d_value_decay) {
  constexpr bool reads_before = Kind == scan_kind::bonus;
  float answered = 0.0f;
#pragma unroll
  for (int j = 0; j < Shape::columns_of_thread; ++j) {
    answered = fmaf(columns.value[j], d_out[j], answered);
    d_value[j] = d_value_decay[j] = 0.0f;
  }
#pragma unroll
  for (int g = 0; g < Shape::quads_of_thread; ++g) {
    const int c = mine.channel + g * 4 * Shape::lanes;
    float query[4], key[4], decay[4], of_bonus[4];
    load_quad(query, token.query + c);
    load_quad(key, token.key + c);
    load_quad(decay, token.decay + c);
    if constexpr (reads_before) load_quad(of_bonus, u + c);
    float d_query[4], d_key[4], d_decay[4], d_bonus[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float read = 0.0f;
      d_key[i] = d_decay[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Shape::columns_of_thread; ++j) {
        const int at = (g * 4 + i) * Shape::columns_of_thread + j;
        const float s = before[at * Shape::threads + static_cast<int>(threadIdx.x)];
        const float column_decay = Kind == scan_kind::value_decays ? columns.decay[j] : 1.0f;
        float& x = gradient.at[g * 4 + i][j];
        if constexpr (!reads_before) x = fmaf(query[i], d_out[j], x);
        read = fmaf(s * column_decay, d_out[j], read);
        d_key[i] = fmaf(x, columns.value[j], d_key[i]);
        d_value[j] = fmaf(key[i], x, d_value[j]);
        x *= decay[i] * column_decay;
        const float part = x * s;
        d_decay[i] += part;
        if constexpr (Kind == scan_kind::value_decays) d_value_decay[j] += part;
        if constexpr (reads_before) x = fmaf(query[i], d_out[j], x);
      }
      if constexpr (reads_before) {
        d_query[i] = fmaf(of_bonus[i] * key[i], answered, read);
        d_key[i] = fmaf(of_bonus[i] * query[i], answered, d_key[i]);
        d_bonus[i] = query[i] * key[i] * answered;
      } else {
        d_query[i] = fmaf(decay[i], read, key[i] * answered);
      }
    }
    put_channels<Shape>(d_query, mine, g, warp_rows.query);
    put_channels<Shape>(d_key, mine, g, warp_rows.key);
    put_channels<Shape>(d_decay, mine, g, warp_rows.decay);
    if constexpr (reads_before) put_channels<Shape>(d_bonus, mine, g, warp_rows.bonus);
  }
  add_over_channels<Shape>(d_value);
  if constexpr (Kind == scan_kind::value_decays) add_over_channels<Shape>(d_value_decay);
  if constexpr (reads_before) {
#pragma unroll
    for (int j = 0; j < Shape::columns_of_thread; ++j) {
      d_value[j] = fmaf(columns.bonus, d_out[j], d_value[j]);
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::sm80
