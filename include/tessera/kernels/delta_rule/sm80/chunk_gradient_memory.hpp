// Shared memory of the kernel of gradients of chunks.
#pragma once

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::ordered_rows;

/// Shared memory of a block. Rows of values have as many columns as those of keys.
template <class Shape>
struct gradient_memory {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  unsigned char d_out[Shape::key_rows::bytes];        ///< then d_q
  unsigned char d_missing[Shape::key_rows::bytes];    ///< then d_k
  unsigned char written[Shape::key_rows::bytes];      ///< then times the decay behind it, and of k
  unsigned char of_reads[Shape::weight_rows::bytes];  ///< E times scales of q and k
  unsigned char of_pairs[Shape::weight_rows::bytes];  ///< B times scales of k
  chunk_gates gates;
  /// Of rows, with decays: q' S do, k' S dr, and the latter times -beta plus k' D d.
  float dots[3][Shape::warps][64];
  float state_dots[Shape::warps];  ///< of <S, D>
  float values[64];                ///< dr . v
  float row_sums[2][64];           ///< of W: of E, and of B over beta
  float diagonal[64];
  float column_sums[2][4][64];  ///< likewise, of 16 rows each; of B with beta
  float along_q[64], along_k[64];
  int first_not_finite[Shape::columns];  ///< as outputs ask for; nothing is noted here
  ordered_rows rows_q, rows_k, rows_v, rows_d_out, rows_d_q, rows_d_k;

  __device__ __forceinline__ float dot_of(int number, int row) const {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < Shape::warps; ++warp) sum += dots[number][warp][row];
    return sum;
  }
  __device__ __forceinline__ float column_of(int part, int row) const {
    float sum = 0.0f;
    for (int block = row / 16; block < 4; ++block) sum += column_sums[part][block][row];
    return sum;
  }
};

}  // namespace tessera::kernels::delta_rule::sm80
