// Thread blocks of a launch that work on parts of one result and combine them themselves: the
// blocks that end last share the combining, or the very last one does all of it. Blocks that have a
// share wait for the last one, but not for long: a share that nobody waited for is left to the last
// one. So nothing depends on which blocks run at the same time.
#pragma once

namespace tessera::prim::cuda {

/// A word in the memory of the device, of 32 or 64 bits, that blocks count in.
__device__ __forceinline__ unsigned add_in_order(unsigned* word) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(word)
               : "memory");
  return before;
}
__device__ __forceinline__ unsigned long long add_in_order(unsigned long long* word) {
  unsigned long long before;
  asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], 1;"
               : "=l"(before)
               : "l"(word)
               : "memory");
  return before;
}
__device__ __forceinline__ unsigned load_in_order(const unsigned* word) {
  unsigned now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  return now;
}
__device__ __forceinline__ unsigned long long load_in_order(const unsigned long long* word) {
  unsigned long long now;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
  return now;
}
/// Makes `expected` `next`; what was there.
__device__ __forceinline__ unsigned exchange_in_order(unsigned* word, unsigned expected,
                                                      unsigned next) {
  unsigned seen;
  asm volatile("atom.cas.acq_rel.gpu.global.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(word), "r"(expected), "r"(next)
               : "memory");
  return seen;
}
__device__ __forceinline__ unsigned long long exchange_in_order(unsigned long long* word,
                                                                unsigned long long expected,
                                                                unsigned long long next) {
  unsigned long long seen;
  asm volatile("atom.cas.acq_rel.gpu.global.b64 %0, [%1], %2, %3;"
               : "=l"(seen)
               : "l"(word), "l"(expected), "l"(next)
               : "memory");
  return seen;
}

/// Counts the splits of a work tile in a word of memory: splits that have arrived, a bit for
/// each part that nobody waits for, and the number of times that all have arrived. Before and after
/// a launch only the last is not zero. `arrive` is called by one thread of a block.
template <class Word>
class arrivals_in {
 public:
  static constexpr int most_splits = 255;
  static constexpr int most_parts = sizeof(Word) == 4 ? 16 : 32;
  static constexpr int times_shift = 8 + most_parts;  ///< in the word

  /// `parts` <= most_parts and <= `splits`
  __device__ __forceinline__ arrivals_in(Word* word, int splits, int parts)
      : word_(word),
        splits_(static_cast<unsigned>(splits)),
        first_(static_cast<unsigned>(splits - parts)) {}

  /// One more split has arrived. Parts, a bit each, that the caller is to combine: it has waited
  /// until all splits had arrived, `patience` clock cycles at most, and sees what they wrote.
  __device__ __forceinline__ unsigned arrive(long long patience) const {
    const Word before = add_in_order(word_);
    const unsigned number = arrived(before);
    if (number < first_ || number >= splits_) return 0;
    const unsigned part = 1u << (number - first_);
    if (number + 1 < splits_) return wait(part, before, patience);
    atomicAdd(word_, (Word{1} << times_shift) - splits_ - (before & left_mask));
    return part | static_cast<unsigned>((before & left_mask) >> left_shift);
  }

 private:
  static constexpr unsigned arrived_mask = 0xff;
  static constexpr int left_shift = 8;
  static constexpr Word left_mask = ((Word{1} << most_parts) - 1) << left_shift;
  static_assert(most_splits <= arrived_mask);

  static __device__ __forceinline__ unsigned arrived(Word word) {
    return static_cast<unsigned>(word) & arrived_mask;
  }

  /// True if all have arrived after `before`.
  __device__ __forceinline__ bool complete(Word now, Word before) const {
    return arrived(now) == splits_ || now >> times_shift != before >> times_shift;
  }

  __device__ __forceinline__ unsigned wait(unsigned part, Word before, long long patience) const {
    const long long begin = clock64();
    Word now;
    do {
      now = load_in_order(word_);
      if (complete(now, before)) return part;
    } while (clock64() - begin < patience);
    for (;;) {
      const Word seen = exchange_in_order(word_, now, now | Word{part} << left_shift);
      if (seen == now) return 0;
      if (complete(seen, before)) return part;
      now = seen;
    }
  }

  Word* word_;
  unsigned splits_;
  unsigned first_;  ///< the arrival that has part 0
};

using arrivals = arrivals_in<unsigned>;
using wide_arrivals = arrivals_in<unsigned long long>;  ///< for more parts

}  // namespace tessera::prim::cuda
