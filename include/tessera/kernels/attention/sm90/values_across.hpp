// Values of 8 bits as products take them: wgmma reads operands of 8 bits only along the axis that
// is summed, keys, and values lie along their columns. So a kernel before the others leaves every
// tile of values across in the workspace, in the order of its bytes in shared memory.
//
// A tile is a narrow panel (prim/cuda/wgmma.hpp) for each 32 keys: a row for each column of v. Of
// 16 keys, 4 c + b is where key 2 c + b of the tile's 16 is for b 0 and 1, and 2 c + 6 + b for 2
// and 3: the order that a lane has weights in (round_weights). Keys behind the end of a sequence
// are 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention::sm90 {

/// Tiles of values of a head. Packed sequences begin with a tile of their own.
constexpr std::int64_t value_tiles_of(const attention_kernel_args& args, int block_kv) noexcept {
  if (args.cu_seqlens_q != nullptr) return args.kv_len / block_kv + args.batch + 1;
  return (args.kv_len + block_kv - 1) / block_kv * args.batch;
}

/// The first tile of a sequence.
template <class Traits>
__device__ __forceinline__ int first_value_tile(const launch_args& args, int sequence,
                                                int k_begin) {
  constexpr int block_kv = Traits::block_kv;
  if (args.call.cu_seqlens_q != nullptr) return k_begin / block_kv + sequence;
  return sequence * static_cast<int>((args.call.kv_len + block_kv - 1) / block_kv);
}

template <class Traits>
__device__ __forceinline__ std::byte* values_across_at(const launch_args& args, int sequence,
                                                       int k_begin, int key0, int kv_head) {
  const int tile = first_value_tile<Traits>(args, sequence, k_begin) + key0 / Traits::block_kv;
  return args.values +
         (static_cast<std::int64_t>(kv_head) * args.value_tiles + tile) * Traits::v_bytes;
}

/// Four words as the bytes of a 4 x 4 matrix that lie across.
__device__ __forceinline__ uint4 bytes_across(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                              std::uint32_t d) {
  const std::uint32_t low_ab = __byte_perm(a, b, 0x5140), high_ab = __byte_perm(a, b, 0x7362);
  const std::uint32_t low_cd = __byte_perm(c, d, 0x5140), high_cd = __byte_perm(c, d, 0x7362);
  return make_uint4(__byte_perm(low_ab, low_cd, 0x5410), __byte_perm(low_ab, low_cd, 0x7632),
                    __byte_perm(high_ab, high_cd, 0x5410), __byte_perm(high_ab, high_cd, 0x7632));
}

/// The sequence that a tile of a packed launch is of: the last whose first tile is not behind it.
template <class Traits>
__device__ __forceinline__ int sequence_of_value_tile(const launch_args& args, int tile) {
  int first = 0;
  int count = static_cast<int>(args.call.batch);
  while (count > 1) {
    const int half = count / 2;
    work_tile work;
    set_sequence(work, args.call, first + half);
    if (first_value_tile<Traits>(args, first + half, work.k_begin) <= tile) {
      first += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return first;
}

/// A thread has four columns of 32 keys of a tile.
template <class Traits>
inline constexpr int across_threads = Traits::v_bytes / 128;

/// One tile of a head, by a block, through `shared`, of which it leaves as a whole.
template <class Traits>
__device__ __forceinline__ void lay_tile_across(const launch_args& args, int tile, int kv_head,
                                                std::uint32_t shared) {
  constexpr int block_kv = Traits::block_kv;
  const attention_kernel_args& call = args.call;
  const bool packed = call.cu_seqlens_q != nullptr;
  const int dense_tiles = static_cast<int>((call.kv_len + block_kv - 1) / block_kv);
  const int sequence = packed ? sequence_of_value_tile<Traits>(args, tile) : tile / dense_tiles;
  work_tile work;
  set_sequence(work, call, sequence);
  const int key0 = (tile - first_value_tile<Traits>(args, sequence, work.k_begin)) * block_kv;
  if (key0 < 0 || key0 >= work.k_len) return;
  std::byte* const to = values_across_at<Traits>(args, sequence, work.k_begin, key0, kv_head);
  constexpr int fours = Traits::v_head_dim / 4;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % fours * 4;
  const int panel = thread / fours;
  std::uint32_t word[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int key = key0 + panel * 32 + i;
    word[i] = key < work.k_len
                  ? *reinterpret_cast<const std::uint32_t*>(
                        token_row<std::uint8_t>(call.v, call.v_strides, packed ? 0 : sequence,
                                                work.k_begin + key, kv_head) +
                        column)
                  : 0;
  }
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
    uint4 part[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::uint32_t* const key = word + chunk * 16 + 2 * c;
      part[c] = bytes_across(key[0], key[1], key[8], key[9]);
    }
    const auto store = [&](int row, const std::uint32_t(&bytes)[4]) {
      const int place = chunk ^ (row / 4 & 1);
      prim::cuda::store_shared_16(
          shared + (panel * Traits::v_head_dim + row) * prim::cuda::narrow_row_bytes + place * 16,
          bytes);
    };
    store(column, {part[0].x, part[1].x, part[2].x, part[3].x});
    store(column + 1, {part[0].y, part[1].y, part[2].y, part[3].y});
    store(column + 2, {part[0].z, part[1].z, part[2].z, part[3].z});
    store(column + 3, {part[0].w, part[1].w, part[2].w, part[3].w});
  }
  __syncthreads();
  for (int chunk = thread; chunk < Traits::v_bytes / 16; chunk += across_threads<Traits>) {
    std::uint32_t bytes[4];
    prim::cuda::load_shared_16(bytes, shared + chunk * 16);
    reinterpret_cast<uint4*>(to)[chunk] = make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  __syncthreads();
}

/// Blocks of a launch at most: each goes on to tiles so many further.
inline constexpr std::int64_t most_across_blocks = 1 << 20;

/// A block has a tile of a head at a time.
template <class Kernel, class Traits>
__global__ void __launch_bounds__(across_threads<Traits>)
    lay_values_across(const __grid_constant__ launch_args args) {
  __shared__ __align__(16) unsigned char shared[Traits::v_bytes];
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const std::int64_t tiles = static_cast<std::int64_t>(args.value_tiles) * args.call.kv_heads;
#pragma unroll 1
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const auto kv_head = static_cast<int>(index / args.value_tiles);
    const auto tile = static_cast<int>(index - std::int64_t{kv_head} * args.value_tiles);
    lay_tile_across<Traits>(args, tile, kv_head, prim::cuda::shared_address(shared));
  }
}

}  // namespace tessera::kernels::attention::sm90
