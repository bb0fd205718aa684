// The online softmax of one register tile of rows. Shared by the prefill and decode loops.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>

namespace tessera::kernels::attention::cpu {

/// Running maximum and sum of the exponentials of consecutive rows. The maximum is a score, in the
/// units of score_units.
struct softmax_rows {
  float* row_max;
  float* row_sum;

  TESSERA_INLINE softmax_rows from(int row) const { return {row_max + row, row_sum + row}; }
  TESSERA_INLINE prim::softmax_state state(int row) const { return {row_max[row], row_sum[row]}; }
  TESSERA_INLINE void clear(int row) const {
    row_max[row] = prim::minus_infinity;
    row_sum[row] = 0.0f;
  }
};

/// True if one of the scores of a row is NaN.
template <class Kernel>
[[gnu::noinline]] bool has_nan(const float* row, int low, int high) {
  bool found = false;
  for (int c = low; c < high; ++c) found = found || row[c] != row[c];
  return found;
}

/// Updates the running softmax of `Rows` rows with their scores in columns [low, high), replaces
/// these by the words of P = exp(score - row_max) and writes what the rows' accumulators must be
/// rescaled by first. `position_of(r)` is the position of row r; it is asked for dropout only.
///
/// The rows go together: their maxima and their sums are folded in one go, and one exponential
/// makes all factors.
template <class Kernel, int Rows, class PositionOf>
TESSERA_INLINE void softmax_tile(const attention_kernel_args& args, const score_units& units,
                                 float* scores, key_columns columns, const PositionOf& position_of,
                                 softmax_rows state, float* rescale) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  using words = typename shape::words;
  constexpr int width = vec::width;
  static_assert(Rows <= width);
  constexpr float infinity = std::numeric_limits<float>::infinity();

  reg lanes[width] = {};
  for (int r = 0; r < Rows; ++r) {
    const float* row = scores + r * shape::score_stride;
    reg best = vec::load(row + columns.low);
    for (int c = columns.low + width; c < columns.high; c += width) {
      best = vec::max(best, vec::load(row + c));
    }
    lanes[r] = best;
  }
  // The order of the last max keeps a NaN of the state; one among the scores reaches the sums, and
  // the state with them.
  const reg before = vec::load_n(state.row_max, Rows);
  const reg after = vec::max(vec::maxima(lanes), before);
  const reg exponent = vec::broadcast(units.exponent);
  const reg shift = vec::select_below(after, vec::broadcast(std::numeric_limits<float>::lowest()),
                                      vec::zero(), after);
  const reg factor = vec::select_below(
      before, after, vec::exp2(vec::mul(vec::sub(before, shift), exponent)), vec::broadcast(1.0f));
  float shifts[width];
  vec::store(shifts, shift);
  float largest[width];
  vec::store(largest, after);
  vec::store_n(rescale, factor, Rows);

  for (int r = 0; r < Rows; ++r) {
    float* row = scores + r * shape::score_stride;
    if (largest[r] == infinity && has_nan<Kernel>(row, columns.low, columns.high)) {
      largest[r] = std::numeric_limits<float>::quiet_NaN();
    }
    const reg subtract = vec::broadcast(shifts[r]);
    reg sum = vec::zero();
    const auto replace = [&](const auto& keep) {
      for (int c = columns.low; c < columns.high; c += width) {
        const reg weight = vec::exp2(vec::mul(vec::sub(vec::load(row + c), subtract), exponent));
        sum = vec::add(sum, weight);
        words::store_words(row, c, keep(weight));
      }
    };
    if (shape::has(attention_feature::dropout) && args.dropout) {
      kept_weights<vec> kept(args, position_of(r), columns.key0 + columns.low);
      replace([&](reg weight) { return vec::mul(weight, kept.next()); });
    } else {
      replace([](reg weight) { return weight; });
    }
    lanes[r] = sum;
  }
  const reg row_sum = vec::load_n(state.row_sum, Rows);
  const reg of_tile = vec::sums(lanes);
  vec::store_n(state.row_sum, vec::fma(row_sum, factor, of_tile), Rows);
  // A NaN among the scores is one of the sum; so is the weight of a score of +inf.
  const reg most = vec::load(largest);
  const reg maximum =
      vec::select_below(most, vec::broadcast(infinity), vec::fma(of_tile, vec::zero(), most), most);
  vec::store_n(state.row_max, maximum, Rows);
}

}  // namespace tessera::kernels::attention::cpu
