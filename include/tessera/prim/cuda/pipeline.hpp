// Tiles on their way from global to shared memory while others are worked on: places (stages),
// arrival and release in one object, so that a loop says what it waits for and nothing else. Copies
// are cp.async here, whose arrivals are groups of a thread and become the block's by a barrier.
#pragma once

#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::prim::cuda {

/// `Stages` is 1, where a tile arrives in the place of the one before once everyone is done with
/// that, or more, where so many less one arrive beside the one that is worked on.
template <int Stages>
class pipeline {
  static_assert(Stages >= 1);

 public:
  static constexpr int stages = Stages;

  /// The place of the tile that is worked on.
  __device__ __forceinline__ int stage() const { return stage_; }
  /// The place that the next tile arrives in.
  __device__ __forceinline__ int next_stage() const {
    if constexpr (Stages <= 2) {
      return Stages == 1 ? 0 : stage_ ^ 1;
    } else {
      return stage_ + 1 == Stages ? 0 : stage_ + 1;
    }
  }
  /// Goes on to the next tile.
  __device__ __forceinline__ void advance() { stage_ = next_stage(); }

  /// Ends an arrival: what this thread has asked for since the last one.
  static __device__ __forceinline__ void commit() { commit_copies(); }

  /// Waits until all arrivals of all threads are there but the `Pending` last ones. It is the
  /// release too: everyone is done with what they worked on before, and its place may be filled.
  template <int Pending = 0>
  static __device__ __forceinline__ void wait() {
    wait_copies<Pending>();
    __syncthreads();
  }

  /// Waits until nothing that this thread has asked for is under way. No barrier.
  static __device__ __forceinline__ void drain() {
    commit_copies();
    wait_copies<0>();
  }

 private:
  int stage_ = 0;
};

}  // namespace tessera::prim::cuda
