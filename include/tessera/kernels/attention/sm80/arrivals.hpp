// Merging splits in the launch that makes them: the blocks of the same query rows that end last
// share the rows, or the very last one merges all. Blocks that have a part wait for the last one,
// but not for long: a part that nobody waited for is left to the last one. So nothing depends on
// which blocks run at the same time, nor does the result on who merges.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/merge.hpp>
#include <tessera/kernels/attention/sm80/places.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Counts the splits of a block of rows in a word of memory: splits that have arrived, a bit for
/// each part that nobody waits for, and the number of times that all have arrived. Before and after
/// a launch only the last is not zero. `arrive` is called by one thread of a block.
class arrivals {
 public:
  /// `parts` <= schedule_sm80::most_combine_blocks and <= `splits`
  __device__ __forceinline__ arrivals(unsigned* word, int splits, int parts)
      : word_(word),
        splits_(static_cast<unsigned>(splits)),
        first_(static_cast<unsigned>(splits - parts)) {}

  /// One more split has arrived. Parts, a bit each, that the caller is to merge: it has waited
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
  static_assert(schedule_sm80::most_splits <= arrived_mask &&
                schedule_sm80::most_combine_blocks == times_shift - left_shift);

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
      unsigned found;
      asm volatile("atom.cas.acq_rel.gpu.global.b32 %0, [%1], %2, %3;"
                   : "=r"(found)
                   : "l"(word_), "r"(now), "r"(now | part << left_shift)
                   : "memory");
      if (found == now) return 0;
      if (complete(found, before)) return part;
      now = found;
    }
  }

  unsigned* word_;
  unsigned splits_;
  unsigned first_;  ///< the arrival that has part 0
};

/// The word of block of rows `item`, in the module's memory (see sm80_places.hpp).
template <class Row>
__device__ __forceinline__ unsigned* arrivals_word(int place, int item) {
  static __device__ unsigned words[arrival_places][most_counted_items];
  return &words[place][item];
}

/// In clock cycles, about 20 us: the last blocks of a wave end closer to each other than that.
inline constexpr long long merge_patience = 1 << 15;

/// The end of a block that has left its sums in the workspace.
template <class Traits, class Row>
__device__ __forceinline__ void merge_if_late(const launch_args& args, const row_range& range,
                                              int item) {
  __shared__ unsigned parts_of_block;
  __syncthreads();
  if (threadIdx.x == 0) {
    const arrivals counted(arrivals_word<Row>(args.arrivals, item), args.splits,
                           args.combine_blocks);
    parts_of_block = counted.arrive(merge_patience);
  }
  __syncthreads();
  const unsigned parts = parts_of_block;
  if (parts == 0) return;
  const auto row_at = [&](int r) {
    merged_row found;
    found.seq = range.seq;
    found.row = query_of(args, range.kv_head, range.first_row + r);
    found.flat = flat_row(args.call, range.seq, found.row);
    return found;
  };
  const int units = range.visible * schedule_sm80::slices_of_row(
                                        args.v_stride, schedule_sm80::groups_for(args.splits));
#pragma unroll 1
  for (unsigned left = parts; left != 0; left &= left - 1) {
    const int part = __ffs(static_cast<int>(left)) - 1;
    const int first = part * args.slices_of_block;
    const int end = min(first + args.slices_of_block, units);
    if (args.splits <= schedule_sm80::few_splits) {
      merge_units<unit_merger<Row, 4, 1, schedule_sm80::few_splits>>(args, row_at, first, end,
                                                                     Traits::warps);
    } else if (args.splits <= schedule_sm80::some_splits) {
      merge_units<unit_merger<Row, 2, 1, schedule_sm80::some_splits>>(args, row_at, first, end,
                                                                      Traits::warps);
    } else if (args.splits <= schedule_sm80::many_splits) {
      merge_units<unit_merger<Row, 1, 1, schedule_sm80::many_splits>>(args, row_at, first, end,
                                                                      Traits::warps);
    } else {
      merge_units<unit_merger<Row, 1, schedule_sm80::groups_of_many, many_at_once>>(
          args, row_at, first, end, Traits::warps);
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
