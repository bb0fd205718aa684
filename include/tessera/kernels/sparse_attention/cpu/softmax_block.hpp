// The online softmax of a block of query rows, tile of keys by tile.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
#include <tessera/prim/common/online_softmax.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Maxima, denominators and sums of weighted values of the tiles seen so far.
template <class Isa>
struct softmax_block : score_block<Isa> {
  using base = score_block<Isa>;
  using base::columns, base::keys, base::rows, base::score_row, base::v, base::v_stride;
  using typename base::vec;

  float* sums;  ///< [rows, v_stride]
  prim::softmax_state state[block_rows];

  softmax_block(std::int64_t of_qk, std::int64_t of_v, prim::float_carver& memory)
      : base(of_qk, of_v, memory), sums(memory.take(block_rows * v_stride)) {}

  /// Nothing has been seen.
  void start() {
    std::fill(state, state + rows, prim::softmax_state{});
    std::fill(sums, sums + rows * v_stride, 0.0f);
  }

  /// Scores become weights and values are added. Values that are not finite are taken out of the
  /// tile, and added to the rows that see them, whatever their weight: those of hidden keys must
  /// not meet one of 0.
  void accumulate() {
    const key_set nonfinite = nonfinite_keys();
    for (int r = 0; r < rows; ++r) {
      const key_set seen = seen_of(r, nonfinite);
      weigh(r);
      for (key_set left = seen; left != 0; left &= left - 1) add_value(r, std::countr_zero(left));
    }
    for (key_set left = nonfinite; left != 0; left &= left - 1) {
      float* const row = value_row(std::countr_zero(left));
      std::fill(row, row + v_stride, 0.0f);
    }
    prim::strided_product<Isa, prim::strided_product_kind::add>(
        {base::scores, base::score_stride}, rows, keys, {v, v_stride}, static_cast<int>(v_stride),
        {sums, v_stride});
  }

  /// Scores become weights, and values are none.
  void weigh() {
    for (int r = 0; r < rows; ++r) weigh(r);
  }

  /// The finished row: sums become its output, times `factor`.
  prim::softmax_result finish(int r, const float* sinks, std::int64_t sink_count,
                              std::int64_t sink_stride) const {
    const prim::softmax_result result =
        prim::finish_row(state[r], sinks, static_cast<int>(sink_count), sink_stride, true);
    scale_row(sums + r * v_stride, result.scale);
    return result;
  }
  TESSERA_INLINE float* output_row(int r) const { return sums + r * v_stride; }

 private:
  using key_set = std::uint64_t;  ///< bit c: key c of the tile
  static_assert(block_keys <= 64);

  TESSERA_INLINE float* value_row(int key) const { return v + key * v_stride; }

  /// Keys whose values are not all finite.
  key_set nonfinite_keys() const {
    key_set found = 0;
    for (int key = 0; key < keys; ++key) {
      if (!all_finite<Isa>(value_row(key), v_stride)) found |= key_set{1} << key;
    }
    return found;
  }
  /// Those of `some` that row r sees, before its scores are weights.
  key_set seen_of(int r, key_set some) const {
    key_set seen = 0;
    for (key_set left = some; left != 0; left &= left - 1) {
      if (score_row(r)[std::countr_zero(left)] != prim::minus_infinity) seen |= left & -left;
    }
    return seen;
  }

  TESSERA_INLINE void scale_row(float* row, float factor) const {
    const auto scale = vec::broadcast(factor);
    for (std::int64_t d = 0; d < v_stride; d += vec::width) {
      vec::store(row + d, vec::mul(vec::load(row + d), scale));
    }
  }

  void weigh(int r) {
    float* const row = score_row(r);
    prim::softmax_state& of_row = state[r];
    auto most = vec::broadcast(of_row.maximum);
    for (int c = 0; c < columns(); c += vec::width) most = vec::max(most, vec::load(row + c));
    const float maximum = vec::maximum(most);
    const float shift = prim::finite_maximum(maximum);
    const auto minus_shift = vec::broadcast(-shift);
    auto sum = vec::zero();
    for (int c = 0; c < columns(); c += vec::width) {
      const auto weight = prim::exp_of<Isa>(vec::add(vec::load(row + c), minus_shift));
      vec::store(row + c, weight);
      sum = vec::add(sum, weight);
    }
    if (of_row.maximum != maximum) {
      const float rescale = prim::exp_of<Isa>(of_row.maximum - shift);
      of_row.denominator *= rescale;
      scale_row(output_row(r), rescale);
      of_row.maximum = maximum;
    }
    of_row.denominator += vec::sum(sum);
  }

  TESSERA_INLINE void add_value(int r, int key) const {
    const auto factor = vec::broadcast(score_row(r)[key]);
    const float* const value = value_row(key);
    float* const to = output_row(r);
    for (std::int64_t d = 0; d < v_stride; d += vec::width) {
      vec::store(to + d, vec::fma(factor, vec::load(value + d), vec::load(to + d)));
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::cpu
