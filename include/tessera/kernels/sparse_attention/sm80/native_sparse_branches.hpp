// The branches of native sparse attention but the selected blocks, and the selection, of f16 and
// bf16 on the matrix unit: a warp has a token and up to 16 heads of a group, whose queries are the
// rows of its products. Tiles of means, or of keys of the window, are those of all tokens of a
// block of threads.
//
//   for each branch { for each tile { scores; softmax; out += P V } }
//   for each tile of means { weights; their sums over heads }; the largest
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/branch_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_selection.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// A token and up to 16 heads of a group, by a warp: rows lane / 4 and lane / 4 + 8; columns of a
/// row are spread over a quad.
template <class Kernel>
class branch_rows {
  using tiles = branch_tiles<Kernel>;
  using words = typename tiles::words;
  using kv_tile = typename tiles::kv_tile;

 public:
  /// Queries of heads [first_head, first_head + heads); without `present` there are none.
  __device__ __forceinline__ void load_queries(const native_sparse_launch& launch,
                                               const token_sequence& tokens, std::int64_t token,
                                               std::int64_t first_head, int heads, bool present) {
    scale_ = launch.call.softmax_scale;
    heads_ = heads;
    const sparse_rows& q = launch.call.q;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool is_row = present && row(half) < heads;
      const auto* const from = reinterpret_cast<const std::uint32_t*>(
          static_cast<const std::uint16_t*>(q.data) +
          (is_row ? native_sparse_launch::offset(q, tokens, token, first_head + row(half)) : 0));
#pragma unroll
      for (int d = 0; d < tiles::dims; ++d) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          q_[d].reg[2 * part + half] =
              is_row ? from[d * 8 + part * 4 + static_cast<int>(lane() % 4)] : 0u;
        }
      }
    }
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int half = 0; half < 2; ++half) states_[half] = {};
#pragma unroll
    for (auto& sums : out_) sums = {};
  }

  /// Takes in keys [first, first + 32) of a tile, of which the token sees `seen`. `weighs`: values
  /// count too.
  __device__ __forceinline__ void add(std::uint32_t tile, bool split, std::int64_t first,
                                      const key_range& seen, bool weighs) {
    multiply_keys(tile, split, first, seen);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = states_[half].maximum;
#pragma unroll
      for (const auto& pair : scores_) {
        most = fmaxf(most, fmaxf(pair.at[2 * half], pair.at[2 * half + 1]));
      }
      most = prim::cuda::maximum_of_quad(most);
      const float shift = prim::finite_maximum(most);
      if (most != states_[half].maximum) {
        const float rescale = exponential(states_[half].maximum - shift);
        states_[half].denominator *= rescale;
#pragma unroll
        for (auto& sums : out_) {
          sums.at[2 * half] *= rescale;
          sums.at[2 * half + 1] *= rescale;
        }
        states_[half].maximum = most;
      }
#pragma unroll
      for (auto& pair : scores_) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& weight = pair.at[2 * half + odd];
          weight = exponential(weight - shift);
          states_[half].denominator += weight;
        }
      }
    }
    if (weighs) add_values(tile + tiles::values_at, first, seen);
  }

  /// Sums of all tiles, of a quad's lanes too; then states are those of whole rows.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (auto& state : states_) state.denominator = prim::cuda::sum_of_quad(state.denominator);
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

  /// Weights of keys, added up over heads: body(key, sum), by a lane of each key.
  template <class Body>
  __device__ __forceinline__ void sum_heads(std::uint32_t tile, std::int64_t first,
                                            const key_range& seen, const Body& body) {
    multiply_keys(tile, true, first, seen);
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shift[half] = prim::finite_maximum(states_[half].maximum) + logf(states_[half].denominator);
    }
#pragma unroll
    for (int n = 0; n < 2 * tiles::groups; ++n) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        float sum = 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float weight = exponential(scores_[n].at[2 * half + odd] - shift[half]);
          if (row(half) < heads_) sum += weight;
        }
#pragma unroll
        for (int step = 4; step < prim::cuda::warp_size; step *= 2) {
          sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
        }
        const std::int64_t key = first + n * 8 + static_cast<int>(lane() % 4) * 2 + odd;
        if (lane() < 4 && key < seen.end) body(key, sum);
      }
    }
  }

 private:
  static __device__ __forceinline__ unsigned lane() {
    return threadIdx.x % prim::cuda::warp_size;
  }
  static __device__ __forceinline__ int row(int half) {
    return static_cast<int>(lane() / 4) + half * 8;
  }
  static __device__ __forceinline__ float exponential(float x) {
    return prim::cuda::exp2_fast(x * prim::log2_e);
  }

  /// Logits, -inf of keys that the token does not see.
  __device__ __forceinline__ void multiply_keys(std::uint32_t tile, bool split, std::int64_t first,
                                                const key_range& seen) {
#pragma unroll
    for (auto& sums : scores_) sums = {};
    multiply(tile);
    if (split) multiply(tile + tiles::rest_at);
    const int begin = static_cast<int>(seen.begin - first), end = clipped_end(first, seen);
#pragma unroll
    for (int n = 0; n < 2 * tiles::groups; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = n * 8 + static_cast<int>(lane() % 4) * 2 + e % 2;
        float& score = scores_[n].at[e];
        score = key >= begin && key < end ? score * scale_ : prim::minus_infinity;
      }
    }
  }
  static __device__ __forceinline__ int clipped_end(std::int64_t first, const key_range& seen) {
    const std::int64_t end = seen.end - first;
    return end < tiles::keys ? static_cast<int>(end) : tiles::keys;
  }
  __device__ __forceinline__ void multiply(std::uint32_t keys) {
#pragma unroll
    for (int d = 0; d < tiles::dims; ++d) {
#pragma unroll
      for (int g = 0; g < tiles::groups; ++g) {
        prim::cuda::fragment_b2 k;
        prim::cuda::load_matrices(k.reg, kv_tile::step(keys + kv_tile::lane_of_b(lane()), g, d));
        words::template multiply_add<0>(scores_[2 * g], q_[d], k);
        words::template multiply_add<1>(scores_[2 * g + 1], q_[d], k);
      }
    }
  }

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

  float scale_ = 1.0f;
  int heads_ = 0;
  prim::cuda::fragment_a q_[tiles::dims];
  prim::cuda::accumulator scores_[2 * tiles::groups];
  prim::cuda::accumulator out_[2 * tiles::dims];
  prim::softmax_state states_[2];
};

template <class Kernel>
__global__ void __launch_bounds__(branch_tiles<Kernel>::block_threads, 1)
    native_sparse_attend_branches(const __grid_constant__ native_sparse_launch launch,
                                  std::int64_t items) {
  using tiles = branch_tiles<Kernel>;
  extern __shared__ __align__(1024) unsigned char branch_memory[];
  const std::uint32_t memory = prim::cuda::shared_address(branch_memory);
  const native_sparse_kernel_args& call = launch.call;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  const std::int64_t blocks = launch.most_blocks();
  float* const sums = launch.weights + (blockIdx.x * tiles::warps + warp) * blocks;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence_part part = launch.part(item / call.kv_heads, tiles::warps);
    if (part.is_empty) continue;
    const token_sequence tokens = part.tokens;
    const std::int64_t kv_head = item % call.kv_heads, token = part.first + warp;
    const std::int64_t left = tokens.length - part.first;
    const std::int64_t last = part.first + (left < tiles::warps ? left : tiles::warps) - 1;
    const bool present = token <= last;
    branch_rows<Kernel> rows;
    for (std::int64_t of_group = 0; of_group < launch.lists_of_group(); ++of_group) {
      const std::int64_t in_group = of_group * tile, heads_left = launch.group() - in_group;
      const std::int64_t first_head = kv_head * launch.group() + in_group;
      rows.load_queries(launch, tokens, token, first_head,
                        static_cast<int>(heads_left < tile ? heads_left : tile), present);
      // Calls body(first key, keys that the token sees) for each tile that it sees something of.
      const auto for_each_tile = [&](sparse_branch branch, const auto& body) {
        const std::int64_t end = launch.seen(branch, last).end;
        const key_range own = present ? launch.seen(branch, token) : key_range{};
        for (std::int64_t first = launch.seen(branch, part.first).begin; first < end;
             first += tiles::keys) {
          const std::int64_t count = end - first;
          __syncthreads();
          tiles::load(launch, branch, tokens, kv_head, first,
                      static_cast<int>(count < tiles::keys ? count : tiles::keys), memory);
          __syncthreads();
          if (first < own.end && first + tiles::keys > own.begin) body(first, own);
        }
      };
      bool adds = false;
#pragma unroll 1
      for (int number = 0; number < 2; ++number) {
        const bool compressed = number == 1;
        const auto branch = compressed ? sparse_branch::compressed : sparse_branch::window;
        const bool weighs = launch.has(branch);
        if (!weighs && !(compressed && launch.selects())) continue;
        rows.start();
        for_each_tile(branch, [&](std::int64_t first, const key_range& own) {
          rows.add(memory, compressed, first, own, weighs);
        });
        rows.finish();
        if (!weighs || !present) continue;
        rows.for_each_pair([&](int row, int column, float low, float high) {
          const std::int64_t head = first_head + row;
          auto* const to = reinterpret_cast<float2*>(
              static_cast<float*>(launch.others.data) +
              native_sparse_launch::offset(launch.others, tokens, token, head) + column);
          const float gate = launch.gate_of(branch, tokens, token, head);
          const float2 before = adds ? *to : make_float2(0.0f, 0.0f);
          *to = make_float2(fmaf(gate, low, before.x), fmaf(gate, high, before.y));
        });
        adds = true;
      }
      if (!launch.selects()) continue;
      for_each_tile(sparse_branch::compressed, [&](std::int64_t first, const key_range& own) {
        rows.sum_heads(memory, first, own, [&](std::int64_t block, float sum) {
          sums[block] = of_group == 0 ? sum : sums[block] + sum;
        });
      });
    }
    if (!launch.selects()) continue;
    __syncwarp();
    if (present) store_selection(launch, tokens, token, kv_head, sums);
    __syncwarp();
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
