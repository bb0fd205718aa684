// Tiles of keys of the branches of native sparse attention for the matrix unit: means, or keys and
// values of the window. Means are f32: as keys they are two elements, the nearest and the nearest
// to what is left.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Tiles of a block of threads: keys, what their elements leave of means, values.
template <class Kernel, int Keys, int Tokens>
struct branch_tiles {
  using element = element_t<Kernel::config.type>;
  using words = prim::cuda::half_words<element>;
  static constexpr int width = Kernel::config.head_dim;
  static constexpr int keys = Keys;
  static constexpr int warps = Tokens;  ///< of a block, a token each
  static constexpr int block_threads = warps * prim::cuda::warp_size;
  static constexpr int groups = keys / 16, dims = width / 16;
  using kv_tile = prim::cuda::shared_tile<keys, width>;
  static constexpr int rest_at = kv_tile::bytes, values_at = 2 * kv_tile::bytes;
  static constexpr int key_bytes = 2 * kv_tile::bytes, shared_bytes = 3 * kv_tile::bytes;

  /// Two numbers as elements, and what these leave of them.
  static __device__ __forceinline__ std::uint32_t split(float low, float high,
                                                        std::uint32_t& rest) {
    const std::uint32_t word = words::pack(low, high);
    const float low_rest = low - words::unpack(static_cast<std::uint16_t>(word));
    const float high_rest = high - words::unpack(static_cast<std::uint16_t>(word >> 16));
    // Of infinity nothing is left.
    rest = prim::cuda::finite_only<element>(words::pack(low_rest, high_rest));
    return word;
  }

  /// Keys [first, first + count) of a branch, with or without values; rows behind them are zeros.
  /// All threads.
  static __device__ __forceinline__ void load(const native_sparse_launch& launch,
                                              sparse_branch branch, bool values,
                                              const token_sequence& tokens, std::int64_t kv_head,
                                              std::int64_t first, int count, std::uint32_t to) {
    const bool compressed = branch == sparse_branch::compressed;
    const native_sparse_kernel_args& call = launch.call;
#pragma unroll 2
    for (unsigned at = threadIdx.x; at < kv_tile::rows * kv_tile::chunks; at += block_threads) {
      const unsigned r = at / kv_tile::chunks, chunk = at % kv_tile::chunks;
      const bool present = static_cast<int>(r) < count;
      std::uint32_t k[4] = {}, rest[4] = {}, v[4] = {};
      if (present && compressed) {
        load_mean(launch.means_k, tokens, kv_head, first + r, chunk, k, rest);
        std::uint32_t unused[4];
        if (values) {
          load_mean(launch.means_v, tokens, kv_head, first + r, chunk, v, unused);
        }
      } else if (present) {
        load_key(call.k, tokens, kv_head, first + r, chunk, k);
        load_key(call.v, tokens, kv_head, first + r, chunk, v);
      }
      const std::uint32_t place = to + kv_tile::offset(r, chunk);
      prim::cuda::store_shared_16(place, k);
      if (values) prim::cuda::store_shared_16(place + values_at, v);
      if (compressed) prim::cuda::store_shared_16(place + rest_at, rest);
    }
  }

 private:
  static __device__ __forceinline__ void load_mean(const sparse_rows& means,
                                                   const token_sequence& tokens,
                                                   std::int64_t kv_head, std::int64_t block,
                                                   unsigned chunk, std::uint32_t (&to)[4],
                                                   std::uint32_t (&rest)[4]) {
    const auto* const from = reinterpret_cast<const float4*>(
        static_cast<const float*>(means.data) +
        native_sparse_launch::mean_offset(means, tokens, block, kv_head) + chunk * 8);
    const float4 low = from[0], high = from[1];
    to[0] = split(low.x, low.y, rest[0]);
    to[1] = split(low.z, low.w, rest[1]);
    to[2] = split(high.x, high.y, rest[2]);
    to[3] = split(high.z, high.w, rest[3]);
  }
  static __device__ __forceinline__ void load_key(const sparse_rows& rows,
                                                  const token_sequence& tokens,
                                                  std::int64_t kv_head, std::int64_t token,
                                                  unsigned chunk, std::uint32_t (&to)[4]) {
    const uint4 four = *reinterpret_cast<const uint4*>(
        static_cast<const element*>(rows.data) +
        native_sparse_launch::offset(rows, tokens, token, kv_head) + chunk * 8);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
