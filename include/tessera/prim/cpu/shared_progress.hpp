// Work that several threads share piece by piece, without a barrier: a thread takes the next pieces
// that nobody has, and waits only for those that others still work on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

/// Pieces 0, 1, 2 ... of some work: who takes which, and how many are done. What a thread wrote
/// before `finish` is seen by those whose `wait` is over. A thread may wait only when it has
/// finished what it took: then every wait ends.
template <class Isa>
class shared_progress {
 public:
  /// The first of `count` pieces that are the caller's now. Pieces behind the last do not exist.
  TESSERA_INLINE int take(int count) { return taken_.fetch_add(count, std::memory_order_relaxed); }
  /// Pieces below this one are somebody's.
  TESSERA_INLINE int taken() const { return taken_.load(std::memory_order_relaxed); }

  TESSERA_INLINE void finish(int count) { done_.fetch_add(count, std::memory_order_release); }
  TESSERA_INLINE bool is_done(int count) const {
    return done_.load(std::memory_order_acquire) >= count;
  }
  /// Until `count` pieces are done. Where threads outnumber the cores, the one that is waited for
  /// may not be running.
  void wait(int count) const {
    for (int spins = 0; !is_done(count); ++spins) {
      if (spins < most_spins) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int most_spins = 64;

  static TESSERA_INLINE void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  // Lines of their own: takers do not disturb those who wait.
  alignas(64) std::atomic<int> taken_{0};
  alignas(64) std::atomic<int> done_{0};
};

}  // namespace tessera::prim
