// Barriers in shared memory that count arrivals and bytes (PTX mbarrier, sm_90), and rings of tiles
// that one warp fills and others empty.
//
// A barrier has phases, of which the current one ends once all expected threads have arrived and
// all announced bytes are there. A wait names the parity of the phase it waits for; on a fresh
// barrier a wait for parity 1 passes, as if a phase before the first had ended.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::prim::cuda {

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// After barriers were initialised, before a __syncthreads: all threads and copies see them.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and announces bytes that copies will bring.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Arrives once all cp.async copies that this thread has asked for before are there.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Returns once the phase of that parity has ended.
__device__ __forceinline__ void wait_for_phase(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{ .reg .pred ended;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra.uni done;\n"
      "bra.uni again;\n"
      "done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// What this thread wrote to shared memory is seen by copies and products that start later
/// (cp.async.bulk, wgmma): after the writes, before the barrier that tells others of them.
__device__ __forceinline__ void show_writes_to_async_units() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Waits for `threads` threads, whole warps, of the block; `number` is 1 to 15 (0 is that of
/// __syncthreads).
__device__ __forceinline__ void wait_for_threads(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Counts as one of those threads for whom others wait, without waiting.
__device__ __forceinline__ void arrive_for_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// The barriers of a ring of `Stages` places, in shared memory: full once a tile is there, empty
/// once everyone is done with it.
template <int Stages>
struct ring_barriers {
  std::uint64_t full[Stages];
  std::uint64_t empty[Stages];

  /// By one thread: arrivals that a tile is brought by, and released by.
  __device__ __forceinline__ void init(int producers, int consumers) {
    for (int stage = 0; stage < Stages; ++stage) {
      init_barrier(shared_address(full + stage), producers);
      init_barrier(shared_address(empty + stage), consumers);
    }
  }
};

/// Where a thread stands in a ring: every user of a ring has one, and all go through the same
/// places in the same order. `barriers` is the address of the ring's barriers.
template <int Stages>
class ring_place {
 public:
  ring_place() = default;
  /// In a ring of one or two places that is gone through as often as another of two.
  static __device__ __forceinline__ ring_place beside(const ring_place<2>& other) {
    static_assert(Stages <= 2);
    ring_place place;
    place.stage_ = Stages == 2 ? other.stage_ : 0;
    place.phase_ = Stages == 2 ? other.phase_ : other.stage_;
    return place;
  }

  /// The number of the place, 0 to Stages - 1.
  __device__ __forceinline__ std::uint32_t stage() const { return stage_; }

  __device__ __forceinline__ void advance() {
    if (++stage_ == Stages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  static __device__ __forceinline__ std::uint32_t full(std::uint32_t barriers,
                                                       std::uint32_t stage) {
    return barriers + 8 * stage;
  }
  __device__ __forceinline__ std::uint32_t full(std::uint32_t barriers) const {
    return full(barriers, stage_);
  }

  /// The one who fills waits until the place is empty; those who empty, until it is full.
  __device__ __forceinline__ void wait_empty(std::uint32_t barriers) const {
    wait_for_phase(barriers + 8 * (Stages + stage_), phase_ ^ 1);
  }
  __device__ __forceinline__ void wait_full(std::uint32_t barriers) const {
    wait_for_phase(full(barriers), phase_);
  }
  __device__ __forceinline__ void release(std::uint32_t barriers) const {
    arrive(barriers + 8 * (Stages + stage_));
  }

 private:
  template <int>
  friend class ring_place;

  std::uint32_t stage_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace tessera::prim::cuda
