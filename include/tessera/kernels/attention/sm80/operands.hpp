// Operands of the products from tiles of keys and values in shared memory, and elements of values
// where they lie: of the row's type, or of 8 bits.
//
// Elements of 8 bits. ldmatrix moves pairs of them as it moves elements of 16 bits, so that a lane
// has neighbours that it widens to the operands of two products. What that does to the order of
// columns, of 16 each:
//
// | of | place | holds column |
// |---|---|---|
// | queries, `permute_queries` | 2t + e; 8 + 2t + e | 4t + e; 4t + 2 + e |
// | sums, `column_of_sum` | 2t + e of the first eight; of the second | 4t + 2e; 4t + 2e + 1 |
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::kernels::attention::sm80 {

/// Keys 16 g to 16 g + 15 and 16 columns as the operand of products. `pairs` are those of 32
/// columns, kept from an even step for the odd one behind it.
template <class Traits>
__device__ __forceinline__ prim::cuda::fragment_b2 key_operand(std::uint32_t (&pairs)[4],
                                                               std::uint32_t lane, int g,
                                                               int step) {
  prim::cuda::fragment_b2 k;
  if constexpr (Traits::codes) {
    if (step % 2 == 0) {
      prim::cuda::load_matrices(pairs, Traits::k_tile::step(lane, g, step / 2));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 words =
          prim::cuda::halves_of_four<typename Traits::code>(pairs[2 * half + step % 2]);
      k.reg[2 * half] = words.x;
      k.reg[2 * half + 1] = words.y;
    }
  } else {
    prim::cuda::load_matrices(k.reg, Traits::k_tile::step(lane, g, step));
  }
  return k;
}

/// Values of 16 keys and 16 columns, likewise.
template <class Traits>
__device__ __forceinline__ prim::cuda::fragment_b2 value_operand(std::uint32_t (&pairs)[4],
                                                                 std::uint32_t lane, int g,
                                                                 int step) {
  prim::cuda::fragment_b2 v;
  if constexpr (Traits::codes) {
    if (step % 2 == 0) {
      prim::cuda::load_matrices_transposed(pairs, Traits::v_tile::step(lane, g, step / 2));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two columns of two keys: the columns apart, each of both keys.
      const uint2 words =
          prim::cuda::halves_of_four<typename Traits::code, true>(pairs[2 * (step % 2) + half]);
      v.reg[half] = words.x;
      v.reg[2 + half] = words.y;
    }
  } else {
    prim::cuda::load_matrices_transposed(v.reg, Traits::v_tile::step(lane, g, step));
  }
  return v;
}

/// The column of element `odd` of a lane's sums of tile d.
template <class Traits>
__device__ __forceinline__ int column_of_sum(int lane, int d, int odd) {
  if constexpr (Traits::codes) return d / 2 * 16 + lane % 4 * 4 + 2 * odd + d % 2;
  return d * 8 + lane % 4 * 2 + odd;
}

/// Element `column` of a row of values as it lies in memory.
template <class Traits, class Place>
__device__ __forceinline__ float value_at(const attention_kernel_args& call, const Place* row,
                                          int column) {
  if constexpr (Traits::codes) {
    const auto pair = static_cast<std::uint32_t>(row[column / 2]);
    return prim::cuda::floats_of<typename Traits::code>(pair >> (column % 2 * 8)).x;
  }
  if constexpr (Traits::widens_codes) {
    if (Traits::has_codes(call)) {
      return prim::cuda::with_code_type(call.pool_type, [&](auto code) -> float {
        return prim::cuda::floats_of<decltype(code)>(row[column]).x;
      });
    }
  }
  using stored = typename Traits::stored;
  return Traits::access::load(reinterpret_cast<const stored*>(row)[column]);
}

}  // namespace tessera::kernels::attention::sm80
