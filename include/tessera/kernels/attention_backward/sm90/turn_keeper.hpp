// Warps of a block that keep the turns of those that multiply: they look whose turn it is, and pass
// it on once sums have arrived, while the others go on.
#pragma once

#include <tessera/kernels/attention_backward/sm80/turns.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention_backward::sm90 {

/// Two warps behind `Tiles::threads` threads of two warpgroups, each for every other step. The
/// fence of one serves all: what the others added was added before, by a barrier.
template <class Tiles>
struct turn_keeper {
  static constexpr int keepers = 2;
  /// Registers of a thread of theirs, and of one of those that multiply.
  static constexpr int own_registers = 24, other_registers = 240;

  /// For the threads of a warpgroup: waits until they may add to the sums of a step.
  static __device__ __forceinline__ void wait(int warpgroup, int step) {
    prim::cuda::wait_for_threads(granted(warpgroup, step), prim::cuda::warpgroup_size + 32);
  }
  /// They have.
  static __device__ __forceinline__ void pass(int step) {
    prim::cuda::arrive_for_threads(added(step), Tiles::threads + 32);
  }
  /// For a keeper. `told`: shared memory for the places of sums that it tells others, or null.
  static __device__ __forceinline__ void keep(const sm80::launch_args& args,
                                              const sm80::key_block& own, int keeper,
                                              float** told = nullptr) {
    for (int step = keeper; step < own.steps; step += keepers) {
      const sm80::tile_order<true> at{own.kv_head * own.group + step / own.count,
                                      own.seen_by.begin + step % own.count};
      if (told != nullptr) {
        told[keeper] = sm80::query_sums<Tiles>::tile_of(args, own.block.seq, at.head, at.tile);
      }
      sm80::turns<Tiles>::wait(args, own, at);
      for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
        prim::cuda::arrive_for_threads(granted(warpgroup, step), prim::cuda::warpgroup_size + 32);
      }
      prim::cuda::wait_for_threads(added(step), Tiles::threads + 32);
      sm80::turns<Tiles>::pass(args, own, at);
    }
  }

 private:
  /// Numbers of barriers.
  static __device__ __forceinline__ int granted(int warpgroup, int step) {
    return 2 + warpgroup * keepers + step % keepers;
  }
  static __device__ __forceinline__ int added(int step) { return 6 + step % keepers; }
};

}  // namespace tessera::kernels::attention_backward::sm90
