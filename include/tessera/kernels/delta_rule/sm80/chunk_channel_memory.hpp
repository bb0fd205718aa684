// Shared memory of the kernel of gradients of chunks with decays of channels.
#pragma once

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channels.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::ordered_rows;

/// Shared memory of a block. Rows of values have as many columns as those of keys.
template <class Shape>
struct channel_gradient_memory {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];  ///< then as pairs take it, then sums
  unsigned char k[Shape::key_rows::bytes];                ///< likewise, times beta
  unsigned char writes[Shape::key_rows::bytes];
  unsigned char d_out[Shape::key_rows::bytes];  ///< then d_q
  /// Then of d_k' what readers have, then all of it, then d_k.
  unsigned char d_missing[Shape::key_rows::bytes];
  unsigned char written[Shape::key_rows::bytes];
  unsigned char of_reads[Shape::weight_rows::bytes];  ///< E
  unsigned char of_pairs[Shape::weight_rows::bytes];  ///< B
  /// The gradient of a channel's sum of log decays up to a token.
  alignas(16) float d_sum[Shape::tokens][Shape::keys + 8];
  channel_levels<Shape::keys> levels;
  float d_end[Shape::keys];  ///< of the sum of log decays up to the end
  float parts[4][Shape::keys];
  chunk_gates tokens;
  float dots[3][Shape::warps][64];  ///< of rows: q' d_q', what beta has, k' d_k'
  float values[64];                 ///< dr . v
  ordered_rows rows_q, rows_k, rows_v, rows_d_out, rows_g, rows_d_q, rows_d_k, rows_d_g;

  /// Sums of gates of a part's tokens, in the place of q.
  using gate_sums = double[4][2][Shape::keys];
  static_assert(sizeof(gate_sums) <= Shape::key_rows::bytes);
  __device__ __forceinline__ gate_sums& gates() { return reinterpret_cast<gate_sums&>(q); }

  __device__ __forceinline__ float dot_of(int number, int row) const {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < Shape::warps; ++warp) sum += dots[number][warp][row];
    return sum;
  }
};

}  // namespace tessera::kernels::delta_rule::sm80
