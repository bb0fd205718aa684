// Blocks that add to the same sums of d_q one after the other, from the last keys to the first:
// sums that always have the same bits.
//
// A tile of sums has a number: of the block of keys that was the last to add, counted from 1. The
// warps of the next block wait for it. One warp of a block sets it, behind a barrier behind which
// all have added: its fence serves what the others added, too. Blocks take their work in order
// (`taken_item`), and wait for such as took theirs before: some block always goes on.
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

/// For whole warps.
template <class Tiles>
class turns {
  using tile_order = sm80::tile_order<true>;

 public:
  /// The block that was the last to add to the sums of a tile, before it is waited for. Nothing
  /// that it wrote may be read.
  static __device__ __forceinline__ int look(const launch_args& args, const key_block& own,
                                             const tile_order& at) {
    int last;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(last)
                 : "l"(turn_of(args, own, at))
                 : "memory");
    return last;
  }
  /// Waits until this warp may add to the sums of a tile.
  static __device__ __forceinline__ void wait(const launch_args& args, const key_block& own,
                                              const tile_order& at) {
    wait_for(number_before(args, own, at.tile), args, own, at);
  }
  /// The same behind a look.
  static __device__ __forceinline__ void wait(const launch_args& args, const key_block& own,
                                              const tile_order& at, int last) {
    const int before = number_before(args, own, at.tile);
    if (prim::cuda::any_of_warp(last != before)) wait_for(before, args, own, at);
  }
  /// For one warp of the block, once all have added to the sums of a tile and met at a barrier:
  /// waits until what they added has arrived.
  static __device__ __forceinline__ void pass(const launch_args& args, const key_block& own,
                                              const tile_order& at) {
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn_of(args, own, at)),
                   "r"(number_of(own))
                   : "memory");
    }
  }

 private:
  static __device__ __forceinline__ void wait_for(int before, const launch_args& args,
                                                  const key_block& own, const tile_order& at) {
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      const int* const turn = turn_of(args, own, at);
      int last;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(last) : "l"(turn) : "memory");
      } while (last != before);
    }
    __syncwarp();
  }
  static __device__ __forceinline__ int number_of(const key_block& own) {
    return static_cast<int>(own.key0) / Tiles::own + 1;
  }
  static __device__ __forceinline__ bool holds(const tile_interval& seen, int tile) {
    return tile >= seen.begin && tile < seen.end;
  }
  static __device__ __forceinline__ int* turn_of(const launch_args& args, const key_block& own,
                                                 const tile_order& tile) {
    const prim::sequence& seq = own.block.seq;
    const std::int64_t first =
        first_sum_tile<Tiles::queries>(args.call.forward, seq.index, seq.q_begin);
    return args.turns + (tile.head * args.sum_tiles + first + tile.tile);
  }
  /// The number of the block whose turn it is before this one's; 0: none's.
  static __device__ __forceinline__ int number_before(const launch_args& args, const key_block& own,
                                                      int tile) {
    return holds(own.seen_by_next, tile) ? number_of(own) + 1 : block_before(args, own, tile);
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
      const unsigned found = __ballot_sync(prim::cuda::all_lanes, holds(seen, tile));
      if (found != 0) return next + __ffs(static_cast<int>(found));
    }
    return 0;
  }
};

}  // namespace tessera::kernels::attention_backward::sm80
