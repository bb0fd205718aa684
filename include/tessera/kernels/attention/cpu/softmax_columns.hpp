// The online softmax of scores that lie key by row, as products of AMX tiles leave them: a row is a
// lane, so that maxima and sums need no turning, and only the weights, half as wide, are turned to
// be operands of the next product. For whole tiles of rows whose scores nothing else looks at.
#pragma once

#include <limits>

#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::kernels::attention::cpu {

/// The scores of a tile of rows, in a buffer of as many floats a row as there are keys and sixteen
/// more. Scores stand behind the first sixteen of each row: [key][row]. Weights come out as
/// operands A, [32 keys][row][word], from the front on: those of 32 keys end where their scores
/// begin, or before.
template <class Kernel>
class softmax_columns {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  using words = typename shape::words;
  static constexpr int width = vec::width;
  static constexpr int rows = prim::tile_rows;

 public:
  static constexpr int keys_at_once = words::k_pack * prim::tile_width;
  static_assert(strides::padding >= prim::tile_width);

  explicit softmax_columns(float* buffer) : buffer_(buffer) {}

  float* scores(int key) const { return buffer_ + (prim::tile_width + key) * rows; }
  /// Those of `keys_at_once` keys lie rows * tile_width behind those of the keys before.
  float* weights(int key) const { return buffer_ + key / words::k_pack * rows; }

  /// Updates the running softmax of all rows with the scores of `keys` keys, a multiple of
  /// keys_at_once, replaces these by weights, and writes what the rows' sums must be rescaled by
  /// first. Of rows behind the last one, in whole registers, anything comes out.
  void update(const score_units& units, int keys, softmax_rows state, float* rescale) const {
    alignas(64) float shifts[rows], sums[rows];
    for (int row = 0; row < rows; row += width) {
      find_shifts(units, keys, row, state, rescale, shifts);
      vec::store(sums + row, vec::zero());
    }
    const reg exponent = vec::broadcast(units.exponent);
    for (int key = 0; key < keys; key += keys_at_once) {
      for (int row = 0; row < rows; row += width) {
        weigh(scores(key) + row, weights(key) + row * prim::tile_width, exponent, shifts + row,
              sums + row);
      }
    }
    const reg infinite = vec::broadcast(std::numeric_limits<float>::infinity());
    for (int row = 0; row < rows; row += width) {
      const reg of_tile = vec::load(sums + row), most = vec::load(state.row_max + row);
      const reg before = vec::load(state.row_sum + row);
      vec::store(state.row_sum + row, vec::fma(before, vec::load(rescale + row), of_tile));
      // As in softmax_tile: a NaN among the scores is one of the sum, and so of the maximum.
      vec::store(state.row_max + row,
                 vec::select_below(most, infinite, vec::fma(of_tile, vec::zero(), most), most));
    }
  }

 private:
  /// The maxima of the rows of a register, and what follows from them.
  void find_shifts(const score_units& units, int keys, int row, softmax_rows state, float* rescale,
                   float* shifts) const {
    constexpr int chains = 4;
    reg best[chains];
    TESSERA_UNROLL
    for (int i = 0; i < chains; ++i) best[i] = vec::load(scores(i) + row);
    for (int key = chains; key < keys; key += chains) {
      TESSERA_UNROLL
      for (int i = 0; i < chains; ++i) {
        best[i] = vec::max(best[i], vec::load(scores(key + i) + row));
      }
    }
    const reg of_tile = vec::max(vec::max(best[0], best[1]), vec::max(best[2], best[3]));
    // The order of the last max keeps a NaN of the state.
    const reg before = vec::load(state.row_max + row), after = vec::max(of_tile, before);
    const reg shift = vec::select_below(after, vec::broadcast(std::numeric_limits<float>::lowest()),
                                        vec::zero(), after);
    vec::store(shifts + row, shift);
    vec::store(rescale + row, vec::select_below(before, after,
                                                vec::exp2(vec::mul(vec::sub(before, shift),
                                                                   vec::broadcast(units.exponent))),
                                                vec::broadcast(1.0f)));
    vec::store(state.row_max + row, after);
    for (int r = row; r < row + width; ++r) {
      if (state.row_max[r] == std::numeric_limits<float>::infinity() && has_nan(keys, r)) {
        state.row_max[r] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  /// True if one of the scores of a row is NaN.
  [[gnu::noinline]] bool has_nan(int keys, int row) const {
    bool found = false;
    for (int key = 0; key < keys; ++key) {
      const float score = scores(key)[row];
      found = found || score != score;
    }
    return found;
  }

  /// Weights of a register of rows for keys_at_once keys: words of pairs of keys, turned.
  void weigh(const float* from, float* to, reg exponent, const float* shifts, float* sums) const {
    const reg shift = vec::load(shifts);
    const auto weight_of = [&](int key) {
      return vec::exp2(vec::mul(vec::sub(vec::load(from + key * rows), shift), exponent));
    };
    reg sum = vec::load(sums);
    reg block[width];
    TESSERA_UNROLL
    for (int word = 0; word < prim::tile_width; ++word) {
      const reg low = weight_of(words::k_pack * word), high = weight_of(words::k_pack * word + 1);
      sum = vec::add(sum, vec::add(low, high));
      block[word] = words::pairs(low, high);
    }
    vec::store(sums, sum);
    vec::transpose(block);
    TESSERA_UNROLL
    for (int r = 0; r < width; ++r) vec::store(to + r * prim::tile_width, block[r]);
  }

  float* buffer_;
};

}  // namespace tessera::kernels::attention::cpu
