// The branches of native sparse attention but the selected blocks, of f16 and bf16 on the matrix
// unit: a warp has a token and up to 16 heads of a group, whose queries are the rows of its
// products. Tiles of means, or of keys of the window, are those of all tokens of a block of
// threads.
//
//   for each branch { for each tile { scores; softmax; out += P V } }
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/branch_scores.hpp>
#include <tessera/kernels/sparse_attention/sm80/branch_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Tiles whose values are added up.
template <class Kernel>
using value_tiles = branch_tiles<Kernel, 32, 8>;

/// A token and up to 16 heads of a group: their scores, and sums of values.
template <class Kernel>
class branch_rows : public branch_scores<value_tiles<Kernel>> {
  using tiles = value_tiles<Kernel>;
  using words = typename tiles::words;
  using kv_tile = typename tiles::kv_tile;
  using base = branch_scores<tiles>;
  using base::clipped_end, base::lane, base::row, base::heads_, base::scores_, base::states_;

 public:
  __device__ __forceinline__ void start() {
    base::start();
#pragma unroll
    for (auto& sums : out_) sums = {};
  }

  /// Takes in keys and values [first, first + 32) of a tile, of which the token sees `seen`.
  __device__ __forceinline__ void add(std::uint32_t tile, bool split, std::int64_t first,
                                      const key_range& seen) {
    base::take(tile, split, first, seen, [&](int half, float factor) {
#pragma unroll
      for (auto& sums : out_) {
        sums.at[2 * half] *= factor;
        sums.at[2 * half + 1] *= factor;
      }
    });
    add_values(tile + tiles::values_at, first, seen);
  }

  /// Calls body(row, column, two neighbours) with finished outputs of the heads that there are.
  template <class Body>
  __device__ __forceinline__ void for_each_pair(const Body& body) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row(half) >= heads_) continue;
      const float sum = states_[half].denominator;
      const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
      for (int n = 0; n < 2 * tiles::dims; ++n) {
        body(row(half), n * 8 + static_cast<int>(lane() % 4) * 2, factor * out_[n].at[2 * half],
             factor * out_[n].at[2 * half + 1]);
      }
    }
  }

 private:
  /// out += P V. Values that the token does not see count as zeros: they may be anything.
  __device__ __forceinline__ void add_values(std::uint32_t values, std::int64_t first,
                                             const key_range& seen) {
    const int begin = static_cast<int>(seen.begin - first), end = clipped_end(first, seen);
    const bool whole = begin <= 0 && end == tiles::keys;
#pragma unroll
    for (int g = 0; g < tiles::groups; ++g) {
      const auto &low = scores_[2 * g].at, &high = scores_[2 * g + 1].at;
      const prim::cuda::fragment_a p{{words::pack(low[0], low[1]), words::pack(low[2], low[3]),
                                      words::pack(high[0], high[1]),
                                      words::pack(high[2], high[3])}};
      std::uint32_t kept[2] = {0xffffffffu, 0xffffffffu};
      if (!whole) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const int key = g * 16 + part * 8 + static_cast<int>(lane() % 4) * 2;
          kept[part] = (key >= begin && key < end ? 0xffffu : 0u) |
                       (key + 1 >= begin && key + 1 < end ? 0xffff0000u : 0u);
        }
      }
#pragma unroll
      for (int d = 0; d < tiles::dims; ++d) {
        prim::cuda::fragment_b2 v;
        prim::cuda::load_matrices_transposed(
            v.reg, kv_tile::step(values + kv_tile::lane_of_a(lane()), g, d));
        if (!whole) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v.reg[i] &= kept[i % 2];
        }
        words::template multiply_add<0>(out_[2 * d], p, v);
        words::template multiply_add<1>(out_[2 * d + 1], p, v);
      }
    }
  }

  prim::cuda::accumulator out_[2 * tiles::dims];
};

template <class Kernel>
__global__ void __launch_bounds__(value_tiles<Kernel>::block_threads, 1)
    native_sparse_attend_branches(const __grid_constant__ native_sparse_launch launch,
                                  std::int64_t items) {
  using tiles = value_tiles<Kernel>;
  extern __shared__ __align__(1024) unsigned char branch_memory[];
  const std::uint32_t memory = prim::cuda::shared_address(branch_memory);
  for (std::int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const auto item = branch_item<tiles>::of(launch, number);
    if (item.part.is_empty) continue;
    const token_sequence tokens = item.part.tokens;
    branch_rows<Kernel> rows;
    for (std::int64_t of_group = 0; of_group < launch.lists_of_group(); ++of_group) {
      item.load_queries(launch, of_group, rows);
      bool adds = false;
#pragma unroll 1
      for (int each = 0; each < 2; ++each) {
        const bool compressed = each == 1;
        const auto branch = compressed ? sparse_branch::compressed : sparse_branch::window;
        if (!launch.has(branch)) continue;
        rows.start();
        item.for_each_tile(launch, branch, true, memory,
                           [&](std::int64_t first, const key_range& own) {
                             rows.add(memory, compressed, first, own);
                           });
        rows.finish();
        if (!item.present) continue;
        rows.for_each_pair([&](int row, int column, float low, float high) {
          const std::int64_t head = item.first_head(launch, of_group) + row;
          auto* const to = reinterpret_cast<float2*>(
              static_cast<float*>(launch.others.data) +
              native_sparse_launch::offset(launch.others, tokens, item.token, head) + column);
          const float gate = launch.gate_of(branch, tokens, item.token, head);
          const float2 before = adds ? *to : make_float2(0.0f, 0.0f);
          *to = make_float2(fmaf(gate, low, before.x), fmaf(gate, high, before.y));
        });
        adds = true;
      }
    }
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
