// A block of query rows against a tile of keys: operands as floats, and logits.
//
// Rows, keys and values lie row by row, padded with zeros to whole registers; keys also as columns,
// which is what scores are computed from. Logits of pairs that do not see each other are -inf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::sparse_attention::cpu {

inline constexpr int block_rows = 64;  ///< query rows of a block
inline constexpr int block_keys = 64;  ///< keys of a tile: whole registers of every instruction set

/// What turns a product into a logit.
struct score_units {
  float scale = 1.0f;
  float cap = 0.0f;  ///< 0: none
};

/// Rows [0, count) of a tensor, row i at offset_of(i), and rows of zeros up to `padded`.
template <class Isa, class Tensor, class OffsetOf>
void load_rows(const Tensor& tensor, int count, int padded, std::int64_t width,
               const OffsetOf& offset_of, float* to, std::int64_t stride) {
  prim::with_elements<Isa>(tensor, [&](const auto* elements) {
    for (int i = 0; i < count; ++i) {
      prim::load_row<Isa>(elements + offset_of(i), width, to + i * stride);
    }
  });
  std::fill(to + count * stride, to + padded * stride, 0.0f);
}

/// Whether floats, in whole registers, are all finite.
template <class Isa>
TESSERA_INLINE bool all_finite(const float* row, std::int64_t count) {
  using vec = prim::simd<Isa>;
  auto sum = vec::zero();
  for (std::int64_t at = 0; at < count; at += vec::width) {
    sum = vec::fma(vec::load(row + at), vec::zero(), sum);
  }
  return vec::sum(sum) == 0.0f;
}

/// NaN and infinity become 0: in products they would meet weights of 0.
template <class Isa>
TESSERA_INLINE void clear_nonfinite(float* row, std::int64_t count) {
  using vec = prim::simd<Isa>;
  if (all_finite<Isa>(row, count)) return;
  const auto bound = vec::broadcast(std::numeric_limits<float>::infinity());
  for (std::int64_t at = 0; at < count; at += vec::width) {
    const auto x = vec::load(row + at);
    const auto magnitude = vec::select_below(x, vec::zero(), vec::sub(vec::zero(), x), x);
    vec::store(row + at, vec::select_below(magnitude, bound, x, vec::zero()));
  }
}

/// Operands and logits of one block; their memory is a thread's.
template <class Isa>
struct score_block {
  using vec = prim::simd<Isa>;
  static constexpr std::int64_t score_stride = block_keys + 16;

  std::int64_t head_dim, v_head_dim;
  std::int64_t q_stride, v_stride;
  float *q, *k, *k_columns, *v, *scores;
  int rows = 0, keys = 0;

  score_block(std::int64_t of_qk, std::int64_t of_v, prim::float_carver& memory)
      : head_dim(of_qk),
        v_head_dim(of_v),
        q_stride(prim::padded<Isa>(of_qk)),
        v_stride(prim::padded<Isa>(of_v)),
        q(memory.take(block_rows * q_stride)),
        k(memory.take(block_keys * q_stride)),
        k_columns(memory.take(q_stride * block_keys)),
        v(memory.take(block_keys * v_stride)),
        scores(memory.take(block_rows * score_stride)) {}

  /// Keys up to whole registers.
  TESSERA_INLINE int columns() const { return static_cast<int>(prim::padded<Isa>(keys)); }
  TESSERA_INLINE float* score_row(int r) const { return scores + r * score_stride; }

  template <class Tensor, class OffsetOf>
  void load_queries(const Tensor& tensor, int count, const OffsetOf& offset_of) {
    rows = count;
    load_rows<Isa>(tensor, count, count, head_dim, offset_of, q, q_stride);
  }
  template <class Tensor, class OffsetOf>
  void load_keys(const Tensor& tensor, int count, const OffsetOf& offset_of) {
    keys = count;
    load_rows<Isa>(tensor, count, columns(), head_dim, offset_of, k, q_stride);
    arrange_keys();
  }
  template <class Tensor, class OffsetOf>
  void load_values(const Tensor& tensor, const OffsetOf& offset_of) {
    load_rows<Isa>(tensor, keys, columns(), v_head_dim, offset_of, v, v_stride);
  }
  /// Keys of `k` as columns.
  void arrange_keys() {
    prim::transpose_rows<Isa>({k, q_stride}, columns(), static_cast<int>(q_stride),
                              {k_columns, block_keys});
  }

  /// Logits, nobody hidden. `beside()`: see strided_product.
  template <class Beside = prim::strided::nothing>
  void compute_scores(const score_units& units, const Beside& beside = {}) {
    prim::strided_product<Isa, prim::strided_product_kind::overwrite>(
        {q, q_stride}, rows, static_cast<int>(head_dim), {k_columns, block_keys}, columns(),
        {scores, score_stride}, beside);
    const auto scale = vec::broadcast(units.scale);
    for (int r = 0; r < rows; ++r) {
      float* const row = score_row(r);
      for (int c = 0; c < columns(); c += vec::width) {
        vec::store(row + c, vec::mul(vec::load(row + c), scale));
      }
      if (units.cap != 0.0f) apply_cap(row, units.cap);
    }
  }

  /// Hides the keys of a row whose number in `hidden` is below 0.
  TESSERA_INLINE void hide(int r, const float* hidden) const {
    float* const row = score_row(r);
    const auto nothing = vec::broadcast(prim::minus_infinity);
    for (int c = 0; c < columns(); c += vec::width) {
      vec::store(row + c, vec::select_below(vec::load(hidden + c), vec::zero(), nothing,
                                            vec::load(row + c)));
    }
  }
  /// Hides the keys of a row outside of [begin, end).
  TESSERA_INLINE void hide_outside(int r, std::int64_t begin, std::int64_t end) const {
    float* const row = score_row(r);
    const auto low = std::clamp<std::int64_t>(begin, 0, columns());
    const auto high = std::clamp<std::int64_t>(end, low, columns());
    std::fill(row, row + low, prim::minus_infinity);
    std::fill(row + high, row + columns(), prim::minus_infinity);
  }

 private:
  void apply_cap(float* row, float cap) const {
    const auto limit = vec::broadcast(cap);
    for (int c = 0; c < columns(); c += vec::width) {
      const auto x = vec::div(vec::load(row + c), limit);
      vec::store(row + c, vec::mul(limit, prim::tanh_of<Isa>(x)));
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::cpu
