// What a warp has of 16 columns and all tokens of a chunk, transposed, in its registers: what is
// missing or written, or the gradient of that; and its products.
#pragma once

#include <cstdint>

#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Rows of 16 columns of a warp over all tokens of a chunk: what is missing, or what is written,
/// transposed. Lane 4 g + t has columns g and g + 8 of tokens 8 n + 2t and 8 n + 2t + 1.
struct chunk_columns {
  prim::cuda::accumulator at[8];

  /// Tokens 16 step on as operand B [tokens, columns].
  template <class Element>
  __device__ __forceinline__ prim::cuda::fragment_b2 operand(int step) const {
    using words = prim::cuda::half_words<Element>;
    const auto& low = at[2 * step].at;
    const auto& high = at[2 * step + 1].at;
    return {{words::pack(low[0], low[1]), words::pack(high[0], high[1]),
             words::pack(low[2], low[3]), words::pack(high[2], high[3])}};
  }
  __device__ __forceinline__ void multiply_tokens(const float* factors) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + lane % 4 * 2);
      at[n].at[0] *= factor.x;
      at[n].at[1] *= factor.y;
      at[n].at[2] *= factor.x;
      at[n].at[3] *= factor.y;
    }
  }

  __device__ __forceinline__ void negate() {
#pragma unroll
    for (auto& tile : at) {
#pragma unroll
      for (float& x : tile.at) x = -x;
    }
  }

  /// += keys state, of rows of keys.
  template <class Element, class Shape, class State>
  __device__ __forceinline__ void read(const State& state, const unsigned char* keys) {
    using words = prim::cuda::half_words<Element>;
    using key_rows = typename Shape::key_rows;
    const std::uint32_t k =
        prim::cuda::shared_address(keys) + key_rows::lane_of_b(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int depth = 0; depth < Shape::keys / 16; ++depth) {
      const prim::cuda::fragment_a held =
          recurrence::sm80::transposed(state.template operand<Element>(0, depth));
      prim::cuda::fragment_b2 of_keys[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        prim::cuda::load_matrices(of_keys[pair].reg, key_rows::step(k, pair, depth));
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        words::template multiply_add<0>(at[2 * pair], held, of_keys[pair]);
        words::template multiply_add<1>(at[2 * pair + 1], held, of_keys[pair]);
      }
    }
  }

  /// Becomes what values are less of it, in the columns of a warp.
  template <class Element, class Shape>
  __device__ __forceinline__ void subtract_from(const unsigned char* values, int warp) {
    using words = prim::cuda::half_words<Element>;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_b2 of_step = values_of<Shape>(values, step, warp);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&x)[4] = at[2 * step + i % 2].at;
        const std::uint32_t word = of_step.reg[i];
        x[i / 2 * 2] = words::unpack(static_cast<std::uint16_t>(word)) - x[i / 2 * 2];
        x[i / 2 * 2 + 1] = words::unpack(static_cast<std::uint16_t>(word >> 16)) - x[i / 2 * 2 + 1];
      }
    }
  }

  /// Values of 16 tokens from 16 step on and of the columns of a warp, as operand B [tokens,
  /// columns].
  template <class Shape>
  static __device__ __forceinline__ prim::cuda::fragment_b2 values_of(const unsigned char* values,
                                                                      int step, int warp) {
    using value_rows = typename Shape::value_rows;
    prim::cuda::fragment_b2 of_step;
    prim::cuda::load_matrices_transposed(
        of_step.reg, value_rows::step(prim::cuda::shared_address(values) +
                                          value_rows::lane_of_a(prim::cuda::thread_index() % 32),
                                      step, warp));
    return of_step;
  }

  /// Becomes L of it, L a lower triangle: transposed, x^T L^T.
  template <class Element, class Shape>
  __device__ __forceinline__ void multiply(const unsigned char* triangle) {
    using words = prim::cuda::half_words<Element>;
    using weight_rows = typename Shape::weight_rows;
    const std::uint32_t rows = prim::cuda::shared_address(triangle) +
                               weight_rows::lane_of_b(prim::cuda::thread_index() % 32);
    chunk_columns products = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_a of_step = recurrence::sm80::transposed(operand<Element>(step));
      prim::cuda::fragment_b2 of_rows[4];
#pragma unroll
      for (int block = step; block < 4; ++block) {
        prim::cuda::load_matrices(of_rows[block].reg, weight_rows::step(rows, block, step));
      }
#pragma unroll
      for (int block = step; block < 4; ++block) {
        words::template multiply_add<0>(products.at[2 * block], of_step, of_rows[block]);
        words::template multiply_add<1>(products.at[2 * block + 1], of_step, of_rows[block]);
      }
    }
    *this = products;
  }

  /// += L^T x for tokens 16 step on of x, which `of_step` has as operand A [columns, tokens].
  template <class Element, class Shape>
  __device__ __forceinline__ void add_transposed(const unsigned char* triangle, int step,
                                                 const prim::cuda::fragment_a& of_step) {
    using words = prim::cuda::half_words<Element>;
    using weight_rows = typename Shape::weight_rows;
    const std::uint32_t rows = prim::cuda::shared_address(triangle) +
                               weight_rows::lane_of_a(prim::cuda::thread_index() % 32);
    prim::cuda::fragment_b2 of_rows[4];
#pragma unroll
    for (int block = 0; block <= step; ++block) {
      prim::cuda::load_matrices_transposed(of_rows[block].reg,
                                           weight_rows::step(rows, step, block));
    }
#pragma unroll
    for (int block = 0; block <= step; ++block) {
      words::template multiply_add<0>(at[2 * block], of_step, of_rows[block]);
      words::template multiply_add<1>(at[2 * block + 1], of_step, of_rows[block]);
    }
  }
};

}  // namespace tessera::kernels::delta_rule::sm80
