// E and B of the pairs of tokens of a chunk, the sums of W, and products of dr and v; see
// chunk_gradients.hpp.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gradient_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_kept_states.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// E (part 0) or B (part 1) of 16 rows, and sums of W.
template <class Element, class Shape>
__device__ __forceinline__ void make_pairs(gradient_memory<Shape>& shared, int part, int block) {
  using words = prim::cuda::half_words<Element>;
  using weight_rows = typename Shape::weight_rows;
  using recurrence::sm80::multiply_rows;
  const bool reads = part == 0;
  const std::uint32_t k = prim::cuda::shared_address(shared.k);
  prim::cuda::accumulator scores[8] = {}, of_values[8] = {};
  multiply_rows<Element, Shape, 1>(scores, reads ? prim::cuda::shared_address(shared.q) : k, k,
                                   block, 0);
  multiply_rows<Element, Shape, 1>(
      of_values, prim::cuda::shared_address(reads ? shared.d_out : shared.d_missing),
      prim::cuda::shared_address(shared.written), block, 0);
  const chunk_gates& gates = shared.gates;
  const std::uint32_t weights =
      prim::cuda::shared_address(reads ? shared.of_reads : shared.of_pairs);
  const int lane = static_cast<int>(prim::cuda::thread_index() % 32);
  float sums[2], of_row[2], beta[2], of_all[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block * 16 + half * 8 + lane / 4;
    sums[half] = gates.decays.sums[row];
    of_row[half] = reads ? gates.scale_q[row] : -gates.scale_k[row];
    beta[half] = reads ? 1.0f : gates.beta[row];
  }
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
    if (tile / 2 > block) break;
    const int token = tile * 8 + lane % 4 * 2;
    const float2 front = *reinterpret_cast<const float2*>(gates.decays.sums + token);
    const float2 scale = *reinterpret_cast<const float2*>(gates.scale_k + token);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block * 16 + half * 8 + lane / 4;
      float weight[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float decay = prim::cuda::exp2_fast(sums[half] - (j == 0 ? front.x : front.y));
        const float x = of_values[tile].at[2 * half + j] *
                        (of_row[half] * (j == 0 ? scale.x : scale.y)) * decay;
        const bool earlier = token + j < row, same = reads && token + j == row;
        float& score = scores[tile].at[2 * half + j];
        const float product = x * score;
        if (same) shared.diagonal[row] = product;
        if (earlier) of_all[half] += product;
        score = earlier ? beta[half] * product : 0.0f;
        weight[j] = earlier || same ? beta[half] * x : 0.0f;
      }
      prim::cuda::store_shared_4(weights +
                                     weight_rows::offset(static_cast<std::uint32_t>(row),
                                                         static_cast<std::uint32_t>(tile)) +
                                     static_cast<std::uint32_t>(lane % 4 * 4),
                                 words::pack(weight[0], weight[1]));
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = prim::cuda::sum_of_quad(of_all[half]);
    if (lane % 4 == 0) shared.row_sums[part][block * 16 + half * 8 + lane / 4] = sum;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = scores[i / 2].at[i % 2] + scores[i / 2].at[2 + i % 2];
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
    }
    if (i / 4 > block) sum = 0.0f;
    if (lane < 4) shared.column_sums[part][block][i / 2 * 8 + lane * 2 + i % 2] = sum;
  }
}

/// The first of eight elements, the others being 0.
template <class Element>
__device__ __forceinline__ uint4 first_elements(const Element* from, int count) {
  std::uint32_t x[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) x[i / 2] |= static_cast<std::uint32_t>(from[i].bits) << (i % 2 * 16);
  }
  return make_uint4(x[0], x[1], x[2], x[3]);
}

/// dr . v: a warp has some rows, eight lanes a row at a time; all loads are under way at once.
template <class Element, class Shape, int Warps = Shape::warps, class Memory>
__device__ __forceinline__ void multiply_values(Memory& shared, const delta_rule_kernel_args& call,
                                                std::int64_t first, int count) {
  using key_rows = typename Shape::key_rows;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  constexpr int turns = Shape::tokens / (Warps * 4), parts = Shape::keys / 64;
  const auto* const values = static_cast<const Element*>(call.v.data);
  const int width = static_cast<int>(call.value_dim);
  uint4 of_row[turns][parts];
#pragma unroll
  for (int i = 0; i < turns * parts; ++i) {
    const int row = (i / parts * Warps + warp) * 4 + lane / 8;
    const int column = (i % parts * 8 + lane % 8) * 8;
    uint4& x = of_row[i / parts][i % parts];
    x = uint4{};
    if (row >= count || column >= width) continue;
    const Element* const from = values + shared.rows_v.at(first + row) + column;
    if (column + 8 <= width) {
      x = *reinterpret_cast<const uint4*>(from);
    } else {
      x = first_elements(from, width - column);
    }
  }
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) {
    const int row = (turn * Warps + warp) * 4 + lane / 8;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t x[4];
      prim::cuda::load_shared_16(
          x, prim::cuda::shared_address(shared.d_missing) +
                 key_rows::offset(static_cast<std::uint32_t>(row),
                                  static_cast<std::uint32_t>(part * 8 + lane % 8)));
      const uint4& v = of_row[turn][part];
      sum += product_of<Element>(x[0], v.x) + product_of<Element>(x[1], v.y) +
             product_of<Element>(x[2], v.z) + product_of<Element>(x[3], v.w);
    }
#pragma unroll
    for (int step = 1; step < 8; step *= 2) {
      sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
    }
    if (lane % 8 == 0) shared.values[row] = sum;
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
