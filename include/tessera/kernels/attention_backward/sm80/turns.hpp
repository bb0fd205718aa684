// Blocks that add to the same sums of d_q one after the other, from the last keys to the first:
// sums that always have the same bits.
//
// Every part of a tile of sums that a warp adds to has a number: of the block of keys that was the
// last to add, counted from 1. The same warp of the next block waits for it. Where a warp keeps the
// turns of all others (sm90/turn_keeper.hpp), a tile has one number. Blocks take their work
// in order (`taken_item`), and wait for such as took theirs before: some block always goes on.
// Under a diagonal a block meets the tiles of those before it only after some of its own: it does
// not wait.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// The work of this block: its own number, or in turns the next that nobody took. `memory` is
/// shared and free before and after. For all threads.
template <bool InTurns>
__device__ __forceinline__ std::int64_t taken_item(const launch_args& args, void* memory) {
  if constexpr (!InTurns) return blockIdx.x;
  auto* const taken = static_cast<unsigned*>(memory);
  if (threadIdx.x == 0) *taken = atomicAdd(args.taken, 1u);
  __syncthreads();
  const unsigned item = *taken;
  __syncthreads();
  return item;
}

/// For all threads of a warp.
template <class Tiles>
struct turns {
  static constexpr int parts = Tiles::turn_parts;  ///< of a tile

  /// Waits until this warp may add to its part of the sums of a step.
  static __device__ __forceinline__ void wait(const launch_args& args, const key_block& own,
                                              int step) {
    const int tile = own.seen_by.begin + step % own.count;
    const bool neighbour = tile >= own.seen_by_next.begin && tile < own.seen_by_next.end;
    const int before = neighbour ? number_of(own) + 1 : block_before(args, own, tile);
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      const int* const turn = turn_of(args, own, step);
      int last;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(last) : "l"(turn) : "memory");
      } while (last != before);
    }
    __syncwarp();
  }
  /// This warp has added to its part of the sums of a step: waits until that has arrived.
  static __device__ __forceinline__ void pass(const launch_args& args, const key_block& own,
                                              int step) {
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn_of(args, own, step)),
                   "r"(number_of(own))
                   : "memory");
    }
  }

 private:
  static __device__ __forceinline__ int number_of(const key_block& own) {
    return static_cast<int>(own.key0 / Tiles::own) + 1;
  }
  static __device__ __forceinline__ int* turn_of(const launch_args& args, const key_block& own,
                                                 int step) {
    const int head = own.kv_head * own.group + step / own.count;
    const prim::sequence& seq = own.block.seq;
    const std::int64_t first =
        first_sum_tile<Tiles::queries>(args.call.forward, seq.index, seq.q_begin);
    const std::int64_t tile = head * args.sum_tiles + first + own.seen_by.begin + step % own.count;
    return args.turns + (tile * parts + (parts > 1 ? threadIdx.x / prim::cuda::warp_size : 0));
  }
  /// The number of the next block of keys that sees a tile of queries; 0: none.
  static __device__ __forceinline__ int block_before(const launch_args& args, const key_block& own,
                                                     int tile) {
    const prim::sequence& seq = own.block.seq;
    const tile_interval* const seen_by =
        args.seen_by + first_key_tile<Tiles::own>(args.call.forward, seq.index, seq.k_begin);
    const auto blocks = static_cast<int>((seq.k_len + Tiles::own - 1) / Tiles::own);
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    for (int next = number_of(own); next < blocks; next += prim::cuda::warp_size) {
      tile_interval seen{};
      if (next + lane < blocks) seen = seen_by[next + lane];
      const unsigned found =
          __ballot_sync(prim::cuda::all_lanes, tile >= seen.begin && tile < seen.end);
      if (found != 0) return next + __ffs(static_cast<int>(found));
    }
    return 0;
  }
};

}  // namespace tessera::kernels::attention_backward::sm80
