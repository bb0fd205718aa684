// Attention of f16 and bf16 to selected blocks on the matrix unit: a warp has a token and up to 16
// heads of a group, whose queries are the rows of its products, and goes through the blocks of the
// token. All rows see all keys of a tile, so that nothing is hidden but what a tile has too many.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Tiles of a warp: queries, and keys and values of which some arrive while others are worked on.
template <class Kernel>
struct selected_tiles {
  using element = element_t<Kernel::config.type>;
  using words = prim::cuda::half_words<element>;
  static constexpr int width = Kernel::config.head_dim;
  static constexpr int keys = 32;
  static constexpr int warps = 2;
  using q_tile = prim::cuda::shared_tile<tile, width>;
  using kv_tile = prim::cuda::shared_tile<keys, width>;
  static constexpr int stage_bytes = 2 * kv_tile::bytes;
  static constexpr int warp_bytes = q_tile::bytes + 2 * stage_bytes;
  static constexpr int shared_bytes = warps * warp_bytes;

  /// Starts the copy of `count` rows, `stride` elements apart; those behind become zeros. A warp.
  template <class Tile>
  static __device__ __forceinline__ void copy(std::uint32_t to, const sparse_rows& from,
                                              std::int64_t first, std::int64_t stride, int count,
                                              unsigned lane) {
    const auto* const rows = static_cast<const element*>(from.data) + first;
#pragma unroll 4
    for (unsigned at = lane; at < Tile::rows * Tile::chunks; at += prim::cuda::warp_size) {
      const unsigned r = at / Tile::chunks, chunk = at % Tile::chunks;
      const bool present = static_cast<int>(r) < count;
      prim::cuda::copy_async_16(to + Tile::offset(r, chunk),
                                present ? rows + r * stride + chunk * 8 : rows, present ? 16u : 0u);
    }
  }
};

/// The keys of a token's blocks, some at a time.
struct block_cursor {
  std::int64_t slot = -1;
  key_range keys{};

  __device__ __forceinline__ bool is_at_end() const { return keys.begin >= keys.end; }
  /// Goes on by `step` keys, or to the next block that has any.
  __device__ __forceinline__ block_cursor next(const native_sparse_launch& launch,
                                               const token_sequence& tokens, std::int64_t token,
                                               std::int64_t kv_head, std::int64_t slots,
                                               int step) const {
    block_cursor at{slot, {keys.begin + step, keys.end}};
    while (at.is_at_end() && ++at.slot < slots) {
      at.keys = launch.tokens_of_block(launch.block(tokens, token, kv_head, at.slot), token);
    }
    return at;
  }
};

/// Finished rows of a token, gated, beside what the other branches gave: columns from `column` on
/// of rows lane / 4 and lane / 4 + 8, which are heads.
template <class Kernel, int Tiles>
__device__ __forceinline__ void store_selected(const native_sparse_launch& launch,
                                               const token_sequence& tokens, std::int64_t token,
                                               std::int64_t first_head, int heads, int column,
                                               const prim::cuda::accumulator (&out)[Tiles],
                                               const float (&denominator)[2]) {
  using element = element_t<Kernel::config.type>;
  const native_sparse_kernel_args& call = launch.call;
  const int lane = static_cast<int>(threadIdx.x % prim::cuda::warp_size);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = denominator[half];
    const int row = lane / 4 + half * 8;
    if (row >= heads) continue;
    const std::int64_t head = first_head + row;
    const float factor = launch.gate_of(sparse_branch::selected, tokens, token, head) *
                         (sum == 0.0f ? 0.0f : 1.0f / sum);
    auto* const to = static_cast<element*>(call.out.data) +
                     native_sparse_launch::offset(call.out, tokens, token, head);
    const float* more = nullptr;
    if (launch.others.data != nullptr) {
      more = static_cast<const float*>(launch.others.data) +
             native_sparse_launch::offset(launch.others, tokens, token, head);
    }
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int at = column + n * 8 + lane % 4 * 2;
      const float first = more == nullptr ? 0.0f : more[at];
      const float second = more == nullptr ? 0.0f : more[at + 1];
      prim::cuda::store_pair(to + at, fmaf(out[n].at[2 * half], factor, first),
                             fmaf(out[n].at[2 * half + 1], factor, second));
    }
  }
}

template <class Kernel>
__global__ void __launch_bounds__(selected_tiles<Kernel>::warps * 32)
    native_sparse_attend_selected(const __grid_constant__ native_sparse_launch launch,
                                  std::int64_t items) {
  using tiles = selected_tiles<Kernel>;
  using words = typename tiles::words;
  using kv_tile = typename tiles::kv_tile;
  constexpr int groups = tiles::keys / 16, dims = tiles::width / 16;
  extern __shared__ __align__(1024) unsigned char selected_memory[];
  const native_sparse_kernel_args& call = launch.call;
  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const unsigned warp = threadIdx.x / prim::cuda::warp_size;
  const std::uint32_t q_tile =
      prim::cuda::shared_address(selected_memory) + warp * tiles::warp_bytes;
  const std::uint32_t stages = q_tile + tiles::q_tile::bytes;

  const std::int64_t item = std::int64_t{blockIdx.x} * tiles::warps + warp;
  if (item >= items) return;
  // Tokens go first: warps side by side read the keys of one head.
  const std::int64_t parts = launch.parts(1);
  const sequence_part part = launch.part(item % parts, 1);
  if (part.is_empty) return;
  const token_sequence tokens = part.tokens;
  const std::int64_t token = part.first;
  const std::int64_t kv_head = item / parts / launch.lists_of_group();
  const std::int64_t in_group = item / parts % launch.lists_of_group() * tile;
  const std::int64_t first_head = kv_head * launch.group() + in_group;
  const std::int64_t heads_left = launch.group() - in_group;
  const int heads = static_cast<int>(heads_left < tile ? heads_left : tile);

  const std::int64_t slots = launch.blocks_of(tokens, token, kv_head);
  const auto next_of = [&](const block_cursor& at) {
    return at.next(launch, tokens, token, kv_head, slots, tiles::keys);
  };
  const auto count_of = [](const block_cursor& at) {
    const std::int64_t left = at.keys.end - at.keys.begin;
    return static_cast<int>(left < tiles::keys ? left : tiles::keys);
  };
  const auto copy = [&](const block_cursor& at, std::uint32_t to) {
    if (!at.is_at_end()) {
      const auto offset = [&](const sparse_rows& of) {
        return native_sparse_launch::offset(of, tokens, at.keys.begin, kv_head);
      };
      tiles::template copy<kv_tile>(to, call.k, offset(call.k), call.k.token, count_of(at), lane);
      tiles::template copy<kv_tile>(to + kv_tile::bytes, call.v, offset(call.v), call.v.token,
                                    count_of(at), lane);
    }
    prim::cuda::commit_copies();
  };

  tiles::template copy<typename tiles::q_tile>(
      q_tile, call.q, native_sparse_launch::offset(call.q, tokens, token, first_head), call.q.head,
      heads, lane);
  block_cursor now = next_of({-1, {0, 0}});
  copy(now, stages);
  prim::cuda::wait_copies<0>();
  __syncwarp();
  prim::cuda::fragment_a q[dims];
#pragma unroll
  for (int d = 0; d < dims; ++d) {
    prim::cuda::load_matrices(q[d].reg,
                              tiles::q_tile::step(q_tile + tiles::q_tile::lane_of_a(lane), 0, d));
  }

  // Rows lane / 4 and lane / 4 + 8; columns of a row are spread over a quad.
  prim::cuda::accumulator out[2 * dims] = {};
  float maximum[2] = {prim::minus_infinity, prim::minus_infinity};
  float denominator[2] = {0.0f, 0.0f};
  std::uint32_t stage = 0;
#pragma unroll 1
  while (!now.is_at_end()) {
    const block_cursor next = next_of(now);
    copy(next, stages + (stage ^ 1u) * tiles::stage_bytes);
    prim::cuda::wait_copies<1>();
    __syncwarp();
    const std::uint32_t keys = stages + stage * tiles::stage_bytes;

    // Scores: S = Q K^T.
    prim::cuda::accumulator scores[2 * groups] = {};
#pragma unroll
    for (int d = 0; d < dims; ++d) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        prim::cuda::fragment_b2 k;
        prim::cuda::load_matrices(k.reg, kv_tile::step(keys + kv_tile::lane_of_b(lane), g, d));
        words::template multiply_add<0>(scores[2 * g], q[d], k);
        words::template multiply_add<1>(scores[2 * g + 1], q[d], k);
      }
    }

    // Softmax: weights in the place of scores.
    const int count = count_of(now);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = maximum[half];
#pragma unroll
      for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& score = scores[n].at[2 * half + odd];
          const int key = n * 8 + static_cast<int>(lane % 4) * 2 + odd;
          score = key < count ? score * call.softmax_scale : prim::minus_infinity;
          most = fmaxf(most, score);
        }
      }
      most = prim::cuda::maximum_of_quad(most);
      const float shift = prim::finite_maximum(most);
      if (most != maximum[half]) {
        const float rescale = prim::cuda::exp2_fast((maximum[half] - shift) * prim::log2_e);
        denominator[half] *= rescale;
#pragma unroll
        for (auto& sums : out) {
          sums.at[2 * half] *= rescale;
          sums.at[2 * half + 1] *= rescale;
        }
        maximum[half] = most;
      }
#pragma unroll
      for (auto& pair : scores) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& weight = pair.at[2 * half + odd];
          weight = prim::cuda::exp2_fast((weight - shift) * prim::log2_e);
          denominator[half] += weight;
        }
      }
    }

    // out += P V.
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const auto &low = scores[2 * g].at, &high = scores[2 * g + 1].at;
      const prim::cuda::fragment_a p{{words::pack(low[0], low[1]), words::pack(low[2], low[3]),
                                      words::pack(high[0], high[1]),
                                      words::pack(high[2], high[3])}};
#pragma unroll
      for (int d = 0; d < dims; ++d) {
        prim::cuda::fragment_b2 v;
        prim::cuda::load_matrices_transposed(
            v.reg, kv_tile::step(keys + kv_tile::bytes + kv_tile::lane_of_a(lane), g, d));
        words::template multiply_add<0>(out[2 * d], p, v);
        words::template multiply_add<1>(out[2 * d + 1], p, v);
      }
    }
    __syncwarp();
    now = next;
    stage ^= 1u;
  }

  const float sums[2] = {prim::cuda::sum_of_quad(denominator[0]),
                         prim::cuda::sum_of_quad(denominator[1])};
  store_selected<Kernel>(launch, tokens, token, first_head, heads, 0, out, sums);
}

}  // namespace tessera::kernels::sparse_attention::sm80
