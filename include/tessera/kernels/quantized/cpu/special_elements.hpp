// Elements of a batch that a product leaves out and that meet decoded weights, one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/prim/cpu/code_lanes.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::quantized::cpu {

inline constexpr auto is_not_finite = [](float x) { return !std::isfinite(x); };
/// Numbers whose sums, of codes times them, may be too large for f32 before they are scaled.
inline constexpr auto is_huge = [](float x) { return !(std::fabs(x) < 0x1p100f); };

inline constexpr auto is_any = [](float /*x*/) { return true; };

/// sums[i] += the elements of row `m` of a that `is_special` times the weights of row `row` + i.
template <class Isa, class IsSpecial>
[[gnu::noinline, gnu::cold]] void add_specials(const packed_weights& weights, std::int64_t row,
                                               int rows, const strided_matrix& a, std::int64_t m,
                                               const IsSpecial& is_special, float* sums) {
  constexpr int block = prim::codes_of_block;
  const weight_reader<Isa> reader(weights);
  float x[block], decoded[block];
  for (std::int64_t first = 0; first < weights.columns(); first += block) {
    const auto count = static_cast<int>(std::min<std::int64_t>(block, weights.columns() - first));
    prim::load_row<Isa>(a, m * a.row + first, count, x);
    if (std::none_of(x, x + count, is_special)) continue;
    for (int r = 0; r < rows; ++r) {
      reader.read(row + r, first, count, decoded);
      for (int i = 0; i < count; ++i) {
        if (is_special(x[i])) sums[r] += x[i] * decoded[i];
      }
    }
  }
}

/// Makes sums right that a product has left elements out of, or that overflowed on their way: those
/// of row `m` of a with the weights of rows from `row` on, of a register of which `rows` count.
template <class Isa, class IsSpecial>
TESSERA_INLINE void settle(const packed_weights& weights, std::int64_t row, int rows,
                           const strided_matrix& a, std::int64_t m, bool has_specials,
                           const IsSpecial& is_special, float* sums) {
  using vec = prim::simd<Isa>;
  // 0 times each is 0, or NaN.
  if (is_not_finite(vec::sum(vec::mul(vec::load(sums), vec::zero())))) {
    std::fill(sums, sums + rows, 0.0f);
    add_specials<Isa>(weights, row, rows, a, m, is_any, sums);
  } else if (has_specials) {
    add_specials<Isa>(weights, row, rows, a, m, is_special, sums);
  }
}

}  // namespace tessera::kernels::quantized::cpu
