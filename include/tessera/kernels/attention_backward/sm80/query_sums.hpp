// Sums of d_q in memory, to which blocks add in no order, in tiles of queries as the matrix unit
// has them in registers: the 16x8 tiles of a tile one behind the other, each lane's four sums
// together (sm_90 adds them at once) or 32 lanes' (before).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/prim/cuda/element_cast.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// The first tile of a sequence among those of a head: packed sequences begin a tile of their own.
template <int Queries>
__host__ __device__ std::int64_t first_sum_tile(const attention_kernel_args& of, std::int64_t index,
                                                std::int64_t q_begin) {
  return of.cu_seqlens_q != nullptr ? q_begin / Queries + index
                                    : index * ((of.q_len + Queries - 1) / Queries);
}

/// Tiles of a head at most.
template <int Queries>
std::int64_t sum_tiles_of(const attention_kernel_args& of) {
  return first_sum_tile<Queries>(of, of.batch, of.q_len) + 1;
}

template <class Tiles>
struct query_sums {
  static constexpr int queries = Tiles::queries, width = Tiles::width;

  static __device__ __forceinline__ float* tile_of(const launch_args& args,
                                                   const prim::sequence& seq, int head, int tile) {
    const std::int64_t at =
        head * args.sum_tiles + first_sum_tile<queries>(args.call.forward, seq.index, seq.q_begin);
    return args.d_q_sums + (at + tile) * (queries * width);
  }

  /// Adds 16 rows x 8 columns.
  static __device__ __forceinline__ void add(float* tile, int rows16, int columns8, int lane,
                                             const accumulator& sums) {
    float* const to = tile + (rows16 * (width / 8) + columns8) * 128;
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + lane * 4),
                 "f"(sums.at[0]), "f"(sums.at[1]), "f"(sums.at[2]), "f"(sums.at[3])
                 : "memory");
#else
    for (int e = 0; e < 4; ++e) atomicAdd(to + e * 32 + lane, sums.at[e]);
#endif
  }

  static __device__ __forceinline__ float sum_at(const float* tile, int row, int column) {
    const float* const from = tile + (row / 16 * (width / 8) + column / 8) * 128;
    const int lane = row % 8 * 4 + column % 8 / 2, e = row / 8 % 2 * 2 + column % 2;
#if __CUDA_ARCH__ >= 900
    return from[lane * 4 + e];
#else
    return from[e * 32 + lane];
#endif
  }
};

/// d_q from its sums: a block for each tile of queries of a head.
template <class Element, class Tiles>
__global__ void __launch_bounds__(threads)
    store_query_sums(const __grid_constant__ launch_args args) {
  constexpr int queries = Tiles::queries, chunks = Tiles::width / 8;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = blockIdx.x;
  const int head = static_cast<int>(item % of.q_heads);
  const auto tile = static_cast<int>(item / of.q_heads % args.tiles);
  const block_sequence block = block_sequence::of(of, item / of.q_heads / args.tiles);
  const float* const sums = query_sums<Tiles>::tile_of(args, block.seq, head, tile);
  for (int at = static_cast<int>(threadIdx.x); at < queries * chunks; at += threads) {
    const int row = at / chunks, column = at % chunks * 8;
    const std::int64_t query = std::int64_t{tile} * queries + row;
    if (query >= block.all_q) break;
    prim::cuda::element_vector<Element, 8> part;
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      const float sum = query_sums<Tiles>::sum_at(sums, row, column + d);
      part.x[d] = prim::nearest<Element>(sum * of.softmax_scale);
    }
    Element* const to = row_of<Element>(args.call.d_q, args.call.d_q_strides, block.seq,
                                        block.seq.q_begin + query, head) +
                        column;
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(part) == 0) {
      *reinterpret_cast<prim::cuda::element_vector<Element, 8>*>(to) = part;
    } else {
#pragma unroll
      for (int d = 0; d < 8; ++d) to[d] = part.x[d];
    }
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
