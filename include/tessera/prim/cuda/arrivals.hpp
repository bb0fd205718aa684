// Thread blocks of a launch that work on parts of one result and combine them themselves: the
// blocks that end last share the combining, or the very last one does all of it. Blocks that have a
// share wait for the last one, but not for long: a share that nobody waited for is left to the last
// one. So nothing depends on which blocks run at the same time.
#pragma once

namespace tessera::prim::cuda {

/// Counts the splits of a work tile in a word of memory: splits that have arrived, a bit for
/// each part that nobody waits for, and the number of times that all have arrived. Before and after
/// a launch only the last is not zero. `arrive` is called by one thread of a block.
class arrivals {
 public:
  static constexpr int most_splits = 255;
  static constexpr int most_parts = 16;

  /// `parts` <= most_parts and <= `splits`
  __device__ __forceinline__ arrivals(unsigned* word, int splits, int parts)
      : word_(word),
        splits_(static_cast<unsigned>(splits)),
        first_(static_cast<unsigned>(splits - parts)) {}

  /// One more split has arrived. Parts, a bit each, that the caller is to combine: it has waited
  /// until all splits had arrived, `patience` clock cycles at most, and sees what they wrote.
  __device__ __forceinline__ unsigned arrive(long long patience) const {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(word_)
                 : "memory");
    const unsigned number = arrived(before);
    if (number < first_ || number >= splits_) return 0;
    const unsigned part = 1u << (number - first_);
    if (number + 1 < splits_) return wait(part, before, patience);
    atomicAdd(word_, (1u << times_shift) - splits_ - (before & left_mask));
    return part | (before & left_mask) >> left_shift;
  }

 private:
  static constexpr unsigned arrived_mask = 0xff;
  static constexpr int left_shift = 8;
  static constexpr unsigned left_mask = 0xffff00;
  static constexpr int times_shift = 24;
  static_assert(most_splits <= arrived_mask && most_parts == times_shift - left_shift);

  static __device__ __forceinline__ unsigned arrived(unsigned word) { return word & arrived_mask; }

  /// True if all have arrived after `before`.
  __device__ __forceinline__ bool complete(unsigned now, unsigned before) const {
    return arrived(now) == splits_ || now >> times_shift != before >> times_shift;
  }

  __device__ __forceinline__ unsigned wait(unsigned part, unsigned before,
                                           long long patience) const {
    const long long begin = clock64();
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word_) : "memory");
      if (complete(now, before)) return part;
    } while (clock64() - begin < patience);
    for (;;) {
      unsigned seen;
      asm volatile("atom.cas.acq_rel.gpu.global.b32 %0, [%1], %2, %3;"
                   : "=r"(seen)
                   : "l"(word_), "r"(now), "r"(now | part << left_shift)
                   : "memory");
      if (seen == now) return 0;
      if (complete(seen, before)) return part;
      now = seen;
    }
  }

  unsigned* word_;
  unsigned splits_;
  unsigned first_;  ///< the arrival that has part 0
};

}  // namespace tessera::prim::cuda
