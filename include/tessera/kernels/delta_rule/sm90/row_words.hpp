// Two neighbouring channels of a token in front of a chunk's products: as they come, scaled by
// powers of sums of decays, and rounded to words of 16-bit pairs.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// What `row_scaler` does with the words of a token (chunk_rows.hpp).
template <class Element, class Shape>
struct row_words {
  /// Two channels of a token, rounded.
  struct scaled {
    std::uint32_t q = 0, reads = 0, writes = 0;
    std::uint32_t own = 0;  ///< of low-rank updates, whose rows of k write beside those that update
    std::uint32_t left_of_q = 0, left_of_k = 0;  ///< what rounding takes from `q` and `own`
  };
  /// Two channels of a token as they come, and what they decay by.
  struct raw {
    std::uint32_t q, k, read, write;
    float2 sums;
    float scale_q, scale_k;
  };

  /// `earlier` is the sum up to the token before, then up to this one, both less `offset`.
  static __device__ __forceinline__ scaled scaled_of(const raw& from, const float (&offset)[2],
                                                     bool multiplies, float (&earlier)[2],
                                                     float& check) {
    const float sums[2] = {from.sums.x - offset[0], from.sums.y - offset[1]};
    float q[2], k[2], reads[2], writes[2];
    unpack(from.q, from.scale_q, q);
    unpack(from.k, from.scale_k, k);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float front = prim::cuda::exp2_fast(sums[j]);
      q[j] *= front;
      reads[j] = Shape::corrects ? k[j] * front : 0.0f;
      writes[j] = k[j] * prim::cuda::exp2_fast(-sums[j]);
    }
    if constexpr (Shape::low_rank) {
      return update_of(from, sums, q, writes, multiplies, earlier, check);
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) check = fmaf(reads[j], 0.0f, fmaf(writes[j], 0.0f, check));
      return {halves::pack(q[0], q[1]), halves::pack(reads[0], reads[1]),
              halves::pack(writes[0], writes[1])};
    }
  }
  /// The words of a low-rank update, which reads the state in front of its decay, with scaled rows
  /// of q and k.
  static __device__ __forceinline__ scaled update_of(const raw& from, const float (&sums)[2],
                                                     const float (&q)[2], const float (&own)[2],
                                                     bool multiplies, float (&earlier)[2],
                                                     float& check) {
    float reads[2], writes[2];
    unpack(from.read, 1.0f, reads);
    unpack(from.write, 1.0f, writes);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (multiplies) {
        writes[j] *= reads[j];
        reads[j] = -reads[j];
      }
      reads[j] *= prim::cuda::exp2_fast(earlier[j]);
      writes[j] *= prim::cuda::exp2_fast(-sums[j]);
      check = fmaf(reads[j], 0.0f, fmaf(writes[j], 0.0f, fmaf(own[j], 0.0f, check)));
      earlier[j] = sums[j];
    }
    const std::uint32_t of_q = halves::pack(q[0], q[1]), of_k = halves::pack(own[0], own[1]);
    return {of_q,
            halves::pack(reads[0], reads[1]),
            halves::pack(writes[0], writes[1]),
            of_k,
            left_of(q, of_q),
            left_of(own, of_k)};
  }
  /// Values of two columns that decay by `sums` and `more`, and the factors of their answers in the
  /// place of sums; of a token that is not `inside` 0.
  static __device__ __forceinline__ void scale_value(std::uint32_t& word, float* sums,
                                                     const float (&more)[2], float token_scale,
                                                     bool inside) {
    float value[2], factor[2];
    unpack(word, token_scale, value);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float sum = inside ? sums[j] + more[j] : 0.0f;
      factor[j] = prim::cuda::exp2_fast(sum);
      value[j] *= prim::cuda::exp2_fast(-sum);
    }
    word = inside ? halves::pack(value[0], value[1]) : 0u;
    *reinterpret_cast<float2*>(sums) = make_float2(factor[0], factor[1]);
  }
  /// What rounding took from two numbers, rounded.
  static __device__ __forceinline__ std::uint32_t left_of(const float (&x)[2], std::uint32_t word) {
    return halves::pack(x[0] - halves::unpack(static_cast<std::uint16_t>(word)),
                        x[1] - halves::unpack(static_cast<std::uint16_t>(word >> 16)));
  }
  static __device__ __forceinline__ void unpack(std::uint32_t word, float factor, float (&x)[2]) {
    x[0] = halves::unpack(static_cast<std::uint16_t>(word)) * factor;
    x[1] = halves::unpack(static_cast<std::uint16_t>(word >> 16)) * factor;
  }

 private:
  using halves = prim::cuda::half_words<Element>;
};

}  // namespace tessera::kernels::delta_rule::sm90
