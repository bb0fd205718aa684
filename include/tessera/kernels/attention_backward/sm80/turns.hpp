// Blocks that add to the same sums of d_q one after the other, by their keys: sums that always have
// the same bits.
//
// Every tile of sums has a number: of the last block of keys that added, counted from 1. A block
// waits for the number of the block before it, of those that see the tile's queries. Blocks take
// their work in order (`taken_item`), and wait for such as took theirs before: some block always
// goes on. Each is a few steps behind the one before.
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

template <class Tiles>
struct turns {
  /// Waits until this block may add to the sums of a step. For all threads of a warp.
  static __device__ __forceinline__ void wait(const launch_args& args, const key_block& own,
                                              int step) {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const int before = block_before(args, own, own.seen_by.begin + step % own.count, lane);
    if (lane == 0) {
      const int* const turn = turn_of(args, own, step);
      int last;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(last) : "l"(turn) : "memory");
      } while (last != before);
    }
    __syncwarp();
  }
  /// All threads of the block have added to the sums of a step, behind a barrier. For one thread.
  static __device__ __forceinline__ void pass(const launch_args& args, const key_block& own,
                                              int step) {
    const int number = static_cast<int>(own.key0 / Tiles::own) + 1;
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn_of(args, own, step)), "r"(number)
                 : "memory");
  }

 private:
  static __device__ __forceinline__ int* turn_of(const launch_args& args, const key_block& own,
                                                 int step) {
    const int head = own.kv_head * own.group + step / own.count;
    const prim::sequence& seq = own.block.seq;
    const std::int64_t first =
        first_sum_tile<Tiles::queries>(args.call.forward, seq.index, seq.q_begin);
    return args.turns + (head * args.sum_tiles + first + own.seen_by.begin + step % own.count);
  }
  /// The number of the last block before this one that sees a tile of queries; 0: none.
  static __device__ __forceinline__ int block_before(const launch_args& args, const key_block& own,
                                                     int tile, int lane) {
    const tile_interval* const seen_by =
        args.seen_by +
        first_key_tile<Tiles::own>(args.call.forward, own.block.seq.index, own.block.seq.k_begin);
    for (int last = static_cast<int>(own.key0 / Tiles::own); last > 0;
         last -= prim::cuda::warp_size) {
      tile_interval seen{};
      if (lane < last) seen = seen_by[last - 1 - lane];
      const unsigned found =
          __ballot_sync(prim::cuda::all_lanes, tile >= seen.begin && tile < seen.end);
      if (found != 0) return last - (__ffs(static_cast<int>(found)) - 1);
    }
    return 0;
  }
};

}  // namespace tessera::kernels::attention_backward::sm80
