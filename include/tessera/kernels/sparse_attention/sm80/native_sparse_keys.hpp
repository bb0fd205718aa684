// Gradients of keys and values of native sparse attention: tiles of means, and of the tokens of a
// block, look at the queries that see them. lse and D of all rows are known.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/gradient_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// A token that looks at a tile, and how often it has selected its block.
struct looking_token {
  std::int64_t token;
  int times;
};

/// Tokens among 256 that look at a tile, in order.
struct looking_tokens {
  looking_token of[threads];
  int of_warp[threads / prim::cuda::warp_size];
  int count;

  /// All threads: those of tokens [first, end) for which times_of(token) is not 0.
  template <class Times>
  __device__ __forceinline__ void look(std::int64_t first, std::int64_t end,
                                       const Times& times_of) {
    const unsigned warp = threadIdx.x / prim::cuda::warp_size;
    const unsigned lane = threadIdx.x % prim::cuda::warp_size;
    const std::int64_t token = first + threadIdx.x;
    const int times = token < end ? times_of(token) : 0;
    const std::uint32_t found = __ballot_sync(prim::cuda::all_lanes, times != 0);
    __syncthreads();
    if (lane == 0) of_warp[warp] = __popc(found);
    __syncthreads();
    int before = 0, all = 0;
    for (unsigned w = 0; w < threads / prim::cuda::warp_size; ++w) {
      if (w < warp) before += of_warp[w];
      all += of_warp[w];
    }
    if (times != 0) {
      of[before + __popc(found & ((1u << lane) - 1))] = {token, times};
    }
    if (threadIdx.x == 0) count = all;
    __syncthreads();
  }
};

/// A tile of keys of a branch with what it adds up, in the registers of the threads whose line
/// belongs to a key.
struct key_side {
  const native_sparse_launch& launch;
  const gradient_tiles& tiles;
  looking_tokens& looking;
  token_sequence tokens{};
  std::int64_t kv_head = 0, first = 0;
  int count = 0;
  line_sums d_k, d_v;

  __device__ __forceinline__ void start(sparse_branch branch) {
    __syncthreads();
    launch.load_keys(tiles.k, tiles.v, branch, tokens, kv_head, first, count);
    d_k.clear();
    d_v.clear();
  }

  /// Adds what tokens [begin, end) make of the tile, whose branch they see; each counts as often
  /// as times_of(token) says.
  template <class Times>
  __device__ __forceinline__ void add(sparse_branch branch, std::int64_t begin, std::int64_t end,
                                      const Times& times_of) {
    for (std::int64_t from = begin; from < end; from += threads) {
      looking.look(from, end, times_of);
      const std::int64_t rows = looking.count * launch.group();
      for (std::int64_t row = 0; row < rows; row += tile) add_rows(branch, row, rows);
    }
  }

 private:
  /// Rows [row, row + 16) of the listed tokens and the heads of the group.
  __device__ __forceinline__ void add_rows(sparse_branch branch, std::int64_t row,
                                           std::int64_t rows) {
    const native_sparse_kernel_args& call = launch.call;
    const std::int64_t group = launch.group();
    const auto token_of = [&](int r) { return looking.of[(row + r) / group]; };
    const auto head_of = [&](int r) { return kv_head * group + (row + r) % group; };
    const auto alive = [&](int r) {
      return row + r < rows &&
             launch.lse[launch.statistic(branch, tokens, token_of(r).token, head_of(r))] !=
                 prim::minus_infinity;
    };
    __syncthreads();
    tiles.q.load(call.q, alive, [&](int r) {
      return native_sparse_launch::offset(call.q, tokens, token_of(r).token, head_of(r));
    });
    tiles.d_out.load(
        call.d_out, alive,
        [&](int r) {
          return native_sparse_launch::offset(call.d_out, tokens, token_of(r).token, head_of(r));
        },
        [&](int r) { return launch.gate_of(branch, tokens, token_of(r).token, head_of(r)); });
    __syncthreads();
    const int j = line_of_thread(), r = place_of_thread();
    pair_gradient pair{};
    if (j < count && alive(r)) {
      const looking_token token = token_of(r);
      const key_range seen = launch.seen(branch, token.token);
      if (first + j >= seen.begin && first + j < seen.end) {
        const std::int64_t at = launch.statistic(branch, tokens, token.token, head_of(r));
        const float product = dot(tiles.q.row(r), tiles.k.row(j), tiles.k.columns);
        const float gradient = dot(tiles.d_out.row(r), tiles.v.row(j), tiles.v.columns);
        pair = pair_gradient::of(call.softmax_scale * product, gradient, 1.0f, launch.lse[at],
                                 launch.correction[at], static_cast<float>(token.times));
      }
    }
    d_k.add(pair.d_score, tiles.q);
    d_v.add(pair.weight, tiles.d_out);
  }
};

/// Gradients of means, without the factor of the scores: a block of threads for 16 of them.
template <class Kernel>
__global__ void __launch_bounds__(threads, 1)
    native_sparse_mean_gradients(const __grid_constant__ native_sparse_launch launch,
                                 std::int64_t items) {
  extern __shared__ float native_memory[];
  __shared__ looking_tokens looking;
  const native_sparse_kernel_args& call = launch.call;
  const gradient_tiles tiles(native_memory, call.head_dim, call.v_head_dim);
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence_part part = launch.part(item / call.kv_heads, call.block_size * tile);
    if (part.is_empty) continue;
    key_side keys{launch, tiles, looking, part.tokens, item % call.kv_heads, part.number * tile};
    const std::int64_t left = launch.blocks_in(part.tokens.length) - keys.first;
    keys.count = static_cast<int>(left < tile ? left : tile);
    keys.start(sparse_branch::compressed);
    keys.add(sparse_branch::compressed, (keys.first + 1) * call.block_size - 1, part.tokens.length,
             [](std::int64_t) { return 1; });
    const int j = line_of_thread();
    if (j >= keys.count) continue;
    const auto store = [&](const line_sums& sums, const sparse_rows& to, std::int64_t width) {
      sums.store(to,
                 native_sparse_launch::mean_offset(to, part.tokens, keys.first + j, keys.kv_head),
                 width, 1.0f);
    };
    store(keys.d_k, launch.d_means_k, call.head_dim);
    store(keys.d_v, launch.d_means_v, call.v_head_dim);
  }
}

/// d_k and d_v: a block of threads for 16 tokens of a block, whose mean has its gradient.
template <class Kernel>
__global__ void __launch_bounds__(threads, 1)
    native_sparse_key_gradients(const __grid_constant__ native_sparse_launch launch,
                                std::int64_t items) {
  extern __shared__ float native_memory[];
  __shared__ looking_tokens looking;
  const native_sparse_kernel_args& call = launch.call;
  const gradient_tiles tiles(native_memory, call.head_dim, call.v_head_dim);
  const std::int64_t tiles_of_block = (call.block_size + tile - 1) / tile;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t number = item % tiles_of_block;
    const sequence_part part = launch.part(item / tiles_of_block / call.kv_heads, call.block_size);
    if (part.is_empty) continue;
    const std::int64_t left = part.tokens.length - part.first;
    const std::int64_t in_block = left < call.block_size ? left : call.block_size;
    if (number * tile >= in_block) continue;
    key_side keys{launch,
                  tiles,
                  looking,
                  part.tokens,
                  item / tiles_of_block % call.kv_heads,
                  part.first + number * tile};
    const std::int64_t in_tile = in_block - number * tile;
    keys.count = static_cast<int>(in_tile < tile ? in_tile : tile);
    keys.start(sparse_branch::selected);
#pragma unroll 1
    for (int of_tokens = 0; of_tokens < 2; ++of_tokens) {
      const bool selected = of_tokens == 1;
      const auto branch = selected ? sparse_branch::selected : sparse_branch::window;
      if (!launch.has(branch)) continue;
      const std::int64_t end = keys.first + keys.count + call.window_left;
      keys.add(branch, keys.first, selected || end > part.tokens.length ? part.tokens.length : end,
               [&](std::int64_t token) {
                 if (!selected) return 1;
                 int times = 0;
                 const std::int64_t slots = launch.blocks_of(part.tokens, token, keys.kv_head);
                 for (std::int64_t s = 0; s < slots; ++s) {
                   const auto block = launch.block(part.tokens, token, keys.kv_head, s);
                   times += block == part.number ? 1 : 0;
                 }
                 return times;
               });
    }
    const int j = line_of_thread();
    if (j >= keys.count) continue;
    const auto store = [&](line_sums& sums, const sparse_rows& to, const sparse_rows& means,
                           std::int64_t width, float factor) {
      if (launch.has(sparse_branch::compressed)) {
        const float share = 1.0f / static_cast<float>(in_block);
        const float* const mean =
            static_cast<const float*>(means.data) +
            native_sparse_launch::mean_offset(means, part.tokens, part.number, keys.kv_head);
#pragma unroll
        for (int i = 0; i < most_columns; ++i) {
          const int column = i * tile + place_of_thread();
          if (column < width) sums.at[i] = fmaf(mean[column], share, sums.at[i]);
        }
      }
      sums.store(to, native_sparse_launch::offset(to, part.tokens, keys.first + j, keys.kv_head),
                 width, factor);
    };
    store(keys.d_k, call.d_k, launch.d_means_k, call.head_dim, call.softmax_scale);
    store(keys.d_v, call.d_v, launch.d_means_v, call.v_head_dim, 1.0f);
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
