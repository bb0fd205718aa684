// Sums of d_q in memory, to which blocks add in turns or in no order, in tiles of queries as the
// matrix unit has them in registers: the 16x8 tiles of a tile one behind the other, each lane's
// four sums together (sm_90 adds them at once) or 32 lanes' (before).
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

/// A tile of a sequence of a packed launch.
struct packed_tile {
  std::int64_t index = 0, tile = 0;
};

/// Number `slot` of the tiles of `Size` tokens of all sequences, of which each begins a tile of its
/// own (see first_sum_tile): so few, or one more behind a sequence, that all may be gone through.
/// Number `count` of the sequences is what lies behind the last. By whole warps. Offsets that do
/// not grow may give tiles that there are not.
template <int Size>
__device__ __forceinline__ packed_tile packed_tile_of(const std::int32_t* offsets,
                                                      std::int64_t count, std::int64_t slot) {
  constexpr int lanes = prim::cuda::warp_size;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  const auto first_of = [&](std::int64_t index) { return offsets[index] / Size + index; };
  std::int64_t index = 0;
  for (std::int64_t left = count + 1; left > 1;) {
    const std::int64_t apart = (left + lanes - 1) / lanes, place = lane * apart;
    const bool begun = place < left && first_of(index + place) <= slot;
    const unsigned all = __ballot_sync(prim::cuda::all_lanes, begun) | 1u;
    const std::int64_t last = (31 - __clz(static_cast<int>(all))) * apart;
    index += last;
    left = min(apart, left - last);
  }
  return {index, slot - first_of(index)};
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

  /// Where 16 rows x 8 columns lie in a tile.
  static __device__ __forceinline__ float* place_of(float* tile, int rows16, int columns8) {
    return tile + (rows16 * (width / 8) + columns8) * 128;
  }
  /// Adds 16 rows x 8 columns, so many below and to the right of a place: constants become part of
  /// the instruction, which they would not in the assembler's text.
  static __device__ __forceinline__ void add(float* place, int rows16, int columns8, int lane,
                                             const accumulator& sums) {
    const int apart = (rows16 * (width / 8) + columns8) * 128;
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(place) + lane + apart / 4,
              make_float4(sums.at[0], sums.at[1], sums.at[2], sums.at[3]));
#else
    for (int e = 0; e < 4; ++e) atomicAdd(place + lane + apart + e * 32, sums.at[e]);
#endif
  }

  /// What `add` of the same lane was given, of all that added.
  static __device__ __forceinline__ accumulator sums_of(const float* tile, int rows16, int columns8,
                                                        int lane) {
    const float* const from = tile + (rows16 * (width / 8) + columns8) * 128;
#if __CUDA_ARCH__ >= 900
    const float4 sums = *reinterpret_cast<const float4*>(from + lane * 4);
    return {{sums.x, sums.y, sums.z, sums.w}};
#else
    return {{from[lane], from[32 + lane], from[64 + lane], from[96 + lane]}};
#endif
  }
};

/// Lanes 4i to 4i + 3 exchange words: lane p gets word p of each, in their order.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool high = (threadIdx.x & static_cast<unsigned>(bit)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      std::uint32_t &low_word = words[i], &high_word = words[i | bit];
      const std::uint32_t sent = high ? low_word : high_word;
      const std::uint32_t got = __shfl_xor_sync(prim::cuda::all_lanes, sent, bit);
      (high ? low_word : high_word) = got;
    }
  }
}

/// d_q from its sums: a block for each tile of queries of a head, whose warps take 16 rows x 32
/// columns at a time.
template <class Element, class Tiles>
__global__ void __launch_bounds__(threads)
    store_query_sums(const __grid_constant__ launch_args args) {
  constexpr int queries = Tiles::queries, columns32 = Tiles::width / 32;
  static_assert(Tiles::width % 32 == 0 && queries % 16 == 0);
  using words = prim::cuda::half_words<Element>;
  using chunk = prim::cuda::element_vector<std::uint32_t, 4>;
  prim::cuda::wait_for_grid_before();
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = blockIdx.x;
  const int head = static_cast<int>(item % of.q_heads);
  packed_tile own{item / of.q_heads / args.tiles, item / of.q_heads % args.tiles};
  if (of.cu_seqlens_q != nullptr) {
    own = packed_tile_of<queries>(of.cu_seqlens_q, of.batch, own.tile);
  }
  const block_sequence block = block_sequence::of(of, own.index);
  const std::int64_t first = own.tile * queries;
  if (first < 0 || first >= block.all_q) return;
  const auto tile = static_cast<int>(own.tile);
  const float* const sums = query_sums<Tiles>::tile_of(args, block.seq, head, tile);
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  for (int part = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
       part < queries / 16 * columns32; part += threads / prim::cuda::warp_size) {
    const int rows16 = part / columns32, columns = part % columns32 * 32;
    if (first + rows16 * 16 >= block.all_q) break;
    chunk of_rows[2];  // rows 8 apart
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const accumulator own = query_sums<Tiles>::sums_of(sums, rows16, columns / 8 + n, lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        of_rows[half].x[n] = words::pack(own.at[2 * half] * of.softmax_scale,
                                         own.at[2 * half + 1] * of.softmax_scale);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      transpose_quad(of_rows[half].x);
      const std::int64_t query = first + rows16 * 16 + half * 8 + lane / 4;
      if (query >= block.all_q) continue;
      auto* const to = row_of<std::uint16_t>(args.call.d_q, args.call.d_q_strides, block.seq,
                                             block.seq.q_begin + query, head) +
                       (columns + lane % 4 * 8);
      store_chunk(to, of_rows[half]);
    }
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
