// Scores of a token and up to 16 heads of a group with a tile of a branch of native sparse
// attention, by a warp on the matrix unit, and their softmax; the tokens of a block of threads,
// whose tiles these are.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/branch_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Rows lane / 4 and lane / 4 + 8; columns of a row are spread over a quad.
template <class Tiles>
class branch_scores {
  using words = typename Tiles::words;
  using kv_tile = typename Tiles::kv_tile;

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
      for (int d = 0; d < Tiles::dims; ++d) {
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
    for (auto& state : states_) state = {};
  }

  /// Takes in the keys of a tile from `first` on, of which the token sees `seen`. Scores become
  /// weights; calls rescale(half, factor) for what was summed up before.
  template <class Rescale>
  __device__ __forceinline__ void take(std::uint32_t tile, bool split, std::int64_t first,
                                       const key_range& seen, const Rescale& rescale) {
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
        const float factor = exponential(states_[half].maximum - shift);
        states_[half].denominator *= factor;
        rescale(half, factor);
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
  }

  /// Sums of all tiles, of a quad's lanes too; then states are those of whole rows.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (auto& state : states_) state.denominator = prim::cuda::sum_of_quad(state.denominator);
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
    for (int n = 0; n < 2 * Tiles::groups; ++n) {
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

 protected:
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
    if (split) multiply(tile + Tiles::rest_at);
    const int begin = static_cast<int>(seen.begin - first), end = clipped_end(first, seen);
#pragma unroll
    for (int n = 0; n < 2 * Tiles::groups; ++n) {
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
    return end < Tiles::keys ? static_cast<int>(end) : Tiles::keys;
  }
  __device__ __forceinline__ void multiply(std::uint32_t keys) {
#pragma unroll
    for (int d = 0; d < Tiles::dims; ++d) {
#pragma unroll
      for (int g = 0; g < Tiles::groups; ++g) {
        prim::cuda::fragment_b2 k;
        prim::cuda::load_matrices(k.reg, kv_tile::step(keys + kv_tile::lane_of_b(lane()), g, d));
        words::template multiply_add<0>(scores_[2 * g], q_[d], k);
        words::template multiply_add<1>(scores_[2 * g + 1], q_[d], k);
      }
    }
  }

  float scale_ = 1.0f;
  int heads_ = 0;
  prim::cuda::fragment_a q_[Tiles::dims];
  prim::cuda::accumulator scores_[2 * Tiles::groups];
  prim::softmax_state states_[2];
};

/// Tokens side by side of a sequence, a warp each, and a key/value head.
template <class Tiles>
struct branch_item {
  sequence_part part{};
  std::int64_t kv_head = 0;
  std::int64_t token = 0;  ///< of the warp
  std::int64_t last = 0;   ///< of the block of threads
  bool present = false;    ///< there is such a token

  static __device__ __forceinline__ branch_item of(const native_sparse_launch& launch,
                                                   std::int64_t item) {
    branch_item found{launch.part(item / launch.call.kv_heads, Tiles::warps),
                      item % launch.call.kv_heads};
    const std::int64_t left = found.part.tokens.length - found.part.first;
    found.token = found.part.first + threadIdx.x / prim::cuda::warp_size;
    found.last = found.part.first + (left < Tiles::warps ? left : Tiles::warps) - 1;
    found.present = found.token <= found.last;
    return found;
  }
  /// The first head of part `of_group` of the group.
  __device__ __forceinline__ std::int64_t first_head(const native_sparse_launch& launch,
                                                     std::int64_t of_group) const {
    return kv_head * launch.group() + of_group * tile;
  }
  template <class Rows>
  __device__ __forceinline__ void load_queries(const native_sparse_launch& launch,
                                               std::int64_t of_group, Rows& rows) const {
    const std::int64_t left = launch.group() - of_group * tile;
    rows.load_queries(launch, part.tokens, token, first_head(launch, of_group),
                      static_cast<int>(left < tile ? left : tile), present);
  }
  /// Calls body(first key, keys that the token sees) for each tile of a branch that it sees
  /// something of, with or without values. All threads.
  template <class Body>
  __device__ __forceinline__ void for_each_tile(const native_sparse_launch& launch,
                                                sparse_branch branch, bool values,
                                                std::uint32_t memory, const Body& body) const {
    const std::int64_t end = launch.seen(branch, last).end;
    const key_range own = present ? launch.seen(branch, token) : key_range{};
    for (std::int64_t first = launch.seen(branch, part.first).begin; first < end;
         first += Tiles::keys) {
      const std::int64_t count = end - first;
      __syncthreads();
      Tiles::load(launch, branch, values, part.tokens, kv_head, first,
                  static_cast<int>(count < Tiles::keys ? count : Tiles::keys), memory);
      __syncthreads();
      if (first < own.end && first + Tiles::keys > own.begin) body(first, own);
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
