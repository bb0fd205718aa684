// The online softmax of one register tile of rows. Shared by the prefill and decode loops.
#pragma once

#include <cstddef>
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

/// The parts of a softmax of `Rows` rows, in their order: maxima of all rows, `begin_weights`, the
/// weights of each row, `finish`. The rows go together: their maxima and their sums are folded in
/// one go, and one exponential makes all factors.
template <class Kernel, int Rows>
class softmax_parts {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  using words = typename shape::words;
  static constexpr int width = vec::width;
  static_assert(Rows <= width);
  static constexpr float infinity = std::numeric_limits<float>::infinity();

 public:
  softmax_parts() = default;
  TESSERA_INLINE softmax_parts(const score_units& units, float* scores, const key_columns& columns,
                               softmax_rows state, float* rescale)
      : scores_(scores),
        state_(state),
        rescale_(rescale),
        low_(columns.low),
        high_(columns.high),
        exponent_(vec::broadcast(units.exponent)) {}

  TESSERA_INLINE void find_maximum(int r) {
    const float* row = row_of(r);
    reg best = vec::load(row + low_);
    for (int c = low_ + width; c < high_; c += width) best = vec::max(best, vec::load(row + c));
    lanes_[r] = best;
  }
  TESSERA_INLINE void begin_weights() {
    // The order of the last max keeps a NaN of the state; one among the scores reaches the sums,
    // and the state with them.
    const reg before = vec::load_n(state_.row_max, Rows);
    const reg after = vec::max(vec::maxima(lanes_), before);
    const reg shift = vec::select_below(after, vec::broadcast(std::numeric_limits<float>::lowest()),
                                        vec::zero(), after);
    factor_ =
        vec::select_below(before, after, vec::exp2(vec::mul(vec::sub(before, shift), exponent_)),
                          vec::broadcast(1.0f));
    vec::store(shifts_, shift);
    vec::store(largest_, after);
    vec::store_n(rescale_, factor_, Rows);
  }
  /// A row whose scores become weights.
  struct row_weights {
    float* scores;
    reg subtract, exponent, sum;

    TESSERA_INLINE reg weights(std::size_t column) {
      const reg score = vec::load(scores + column);
      const reg weight = vec::exp2(vec::mul(vec::sub(score, subtract), exponent));
      sum = vec::add(sum, weight);
      return weight;
    }
    /// Those of a register; `keep(weight)` is what is kept of them.
    template <class Keep>
    TESSERA_INLINE void replace(int column, const Keep& keep) {
      words::store_words(scores, column, keep(weights(static_cast<std::size_t>(column))));
    }
    /// Of two.
    TESSERA_INLINE void replace_two(std::size_t column) {
      const reg low = weights(column);
      words::store_two(scores + column / words::k_pack, low, weights(column + width));
    }
  };
  TESSERA_INLINE row_weights begin_row(int r) {
    float* const row = row_of(r);
    if (largest_[r] == infinity && has_nan<Kernel>(row, low_, high_)) {
      largest_[r] = std::numeric_limits<float>::quiet_NaN();
    }
    return {row, vec::broadcast(shifts_[r]), exponent_, vec::zero()};
  }
  TESSERA_INLINE void finish_row(int r, reg sum) { lanes_[r] = sum; }
  TESSERA_INLINE void finish() {
    const reg row_sum = vec::load_n(state_.row_sum, Rows);
    const reg of_tile = vec::sums(lanes_);
    vec::store_n(state_.row_sum, vec::fma(row_sum, factor_, of_tile), Rows);
    // A NaN among the scores is one of the sum; so is the weight of a score of +inf.
    const reg most = vec::load(largest_);
    const reg maximum = vec::select_below(most, vec::broadcast(infinity),
                                          vec::fma(of_tile, vec::zero(), most), most);
    vec::store_n(state_.row_max, maximum, Rows);
  }

 private:
  TESSERA_INLINE float* row_of(int r) const { return scores_ + r * shape::score_stride; }

  float* scores_;
  softmax_rows state_;
  float* rescale_;
  int low_, high_;
  reg exponent_;
  reg lanes_[width] = {};
  reg factor_;
  float shifts_[width], largest_[width];
};

/// Updates the running softmax of `Rows` rows with their scores in columns [low, high), replaces
/// these by the words of P = exp(score - row_max) and writes what the rows' accumulators must be
/// rescaled by first. `position_of(r)` is the position of row r; it is asked for dropout only.
template <class Kernel, int Rows, class PositionOf>
TESSERA_INLINE void softmax_tile(const attention_kernel_args& args, const score_units& units,
                                 float* scores, key_columns columns, const PositionOf& position_of,
                                 softmax_rows state, float* rescale) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  softmax_parts<Kernel, Rows> parts(units, scores, columns, state, rescale);
  for (int r = 0; r < Rows; ++r) parts.find_maximum(r);
  parts.begin_weights();
  for (int r = 0; r < Rows; ++r) {
    auto row = parts.begin_row(r);
    if (shape::has(attention_feature::dropout) && args.dropout) {
      kept_weights<vec> kept(args, position_of(r), columns.key0 + columns.low);
      for (int c = columns.low; c < columns.high; c += vec::width) {
        row.replace(c, [&](reg weight) { return vec::mul(weight, kept.next()); });
      }
    } else if constexpr (shape::tiles) {
      for (int c = columns.low; c < columns.high; c += 2 * vec::width) {
        row.replace_two(static_cast<std::size_t>(c));
      }
    } else {
      for (int c = columns.low; c < columns.high; c += vec::width) {
        row.replace(c, [](reg weight) { return weight; });
      }
    }
    parts.finish_row(r, row.sum);
  }
  parts.finish();
}

}  // namespace tessera::kernels::attention::cpu
