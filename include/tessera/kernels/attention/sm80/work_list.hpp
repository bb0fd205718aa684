// The work of a launch on keys in pages as a list in its workspace, which a kernel writes before it
// (work_planner.hpp), by lengths that only the device knows: items of about the same number of
// keys, and the first pages that sequences share as items of their own, whose rows are those of
// all of them.
//
// Entries are groups of sequences with a prefix, then sequences, then the rows behind the last.
// The rows of an entry are cut in tiles, the keys of a tile in items.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/prefix.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::sm80 {

/// Some keys of a tile of rows: the work of a thread block for each key/value head. It is read and
/// written 16 bytes at a time.
struct alignas(16) work_item {
  int entry = 0;
  int first_row = 0;                  ///< of the entry's folded axis
  int first_tile = 0, last_tile = 0;  ///< of keys
  int place = -1;  ///< of the partial results of the tile's first item; -1: rows are finished here
  int split = 0;   ///< which of the tile's items this is
  int splits = 1;  ///< how many it has
  int reserved = 0;
};

/// A tile of rows of an entry, and its keys, read and written at once.
struct alignas(16) planned_tile {
  int entry = 0;
  int first_row = 0;   ///< of the entry's folded axis
  int first_tile = 0;  ///< of keys, up to the next
  unsigned last_tile : 31 = 0;
  unsigned joined : 1 = 0;  ///< its rows are combined with those of another entry

  __device__ __forceinline__ int keys() const { return static_cast<int>(last_tile) - first_tile; }
};

/// Entries that have rows, and the rows behind the last.
__device__ __forceinline__ int entries_of(const attention_kernel_args& call) {
  const int behind = call.cu_seqlens_q != nullptr ? 1 : 0;
  return static_cast<int>(call.prefixes.count + sequences_in_use(call)) + behind;
}

/// What an entry has: its rows, of which `used` says whether they see keys, and where its keys
/// begin.
struct work_entry {
  prim::sequence seq{};
  int rows = 0;  ///< of the folded axis
  bool used = true;
  bool is_prefix = false;
  int prefix = -1;  ///< of a sequence: whose keys are items of another entry
};
/// Keys of a prefix in whole tiles of `block_kv` keys, two of which are whole tiles of the kernel
/// beside.
template <class Args>
__device__ __forceinline__ int whole_steps(const Args& args, int keys, int block_kv) {
  return args.list.apart ? keys / (2 * block_kv) * (2 * block_kv) : keys / block_kv * block_kv;
}
/// `block_kv`: of the row. `finds_prefix`: whether the prefix of a sequence is asked for.
template <class Args>
__device__ __forceinline__ work_entry entry_of(const Args& args, int entry, int block_kv,
                                               bool finds_prefix = true) {
  const attention_kernel_args& call = args.call;
  const auto group = static_cast<int>(args.group.value);
  const auto prefixes = static_cast<int>(call.prefixes.count);
  work_entry of;
  of.is_prefix = entry < prefixes;
  const auto sequence = static_cast<int>(entry - prefixes);
  if (of.is_prefix) {
    of.seq =
        sequence_of_prefix(call, entry, 1, [&](std::int64_t n) { return sequence_of(call, n); });
    of.seq.k_len = whole_steps(args, static_cast<int>(of.seq.k_len), block_kv);
    if (of.seq.k_len == 0) of.seq.q_len = 0;
  } else if (sequence < sequences_in_use(call)) {
    of.seq = sequence_of(call, sequence);
    if (prefixes > 0 && finds_prefix)
      of.prefix = static_cast<int>(prefix_of_sequence(call, sequence));
  } else {
    of.used = false;
    of.seq.q_begin = cut_to(call.cu_seqlens_q[sequences_in_use(call)], call.q_len);
    of.seq.q_len = call.q_len - of.seq.q_begin;
  }
  of.rows = static_cast<int>(of.seq.q_len) * group;
  return of;
}

/// Rows from `first_row` on, as many as a tile has.
__device__ __forceinline__ work_tile tile_of(const work_entry& entry, int kv_head, int first_row,
                                             int block_q) {
  work_tile work;
  work.seq = entry.seq;
  work.kv_head = kv_head;
  work.first_row = first_row;
  work.rows = min(block_q, entry.rows - first_row);
  work.used = entry.used ? work.rows : 0;
  return work;
}

template <mask_mode Mode>
__device__ __forceinline__ prim::row_visibility<Mode> visibility_of_entry(
    const attention_kernel_args& call, const prim::sequence& seq, bool is_prefix) {
  return is_prefix ? visibility_of_prefix<Mode>(seq) : visibility_of<Mode>(call, seq);
}

/// Makes this thread see the list, and what it was made of, where the launch has not waited for the
/// kernel that wrote it.
__device__ __forceinline__ void acquire_list(const work_list& list) {
  [[maybe_unused]] int count;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
               : "=r"(count)
               : "l"(list.tile_count)
               : "memory");
}

/// Items up to the last that a launch has.
__device__ __forceinline__ int end_of_items(const work_list& list) {
  return min(list.tile_count[list.part == work_part::groups ? 2 : 1], list.most_items);
}

/// Item `number` of a launch; null: there are not so many.
template <class Args>
__device__ __forceinline__ const work_item* item_of(const Args& args, int number) {
  const work_list& list = args.list;
  if (list.part == work_part::sequences) number += list.tile_count[2];
  if (number >= end_of_items(list)) return nullptr;
  const bool ordered = list.part == work_part::all && list.tile_count[3] != 0;
  return list.items + (ordered ? list.order[number] : number);
}

/// What block `index` of a launch with a list does; null: nothing.
__device__ __forceinline__ const work_item* item_of_block(const launch_args& args, int index) {
  return item_of(args, args.kv_heads.quotient(index));
}

/// Partial results of a tile of rows and a key/value head: row r of split s has place
/// `first` + r * splits + s.
template <class Args>
__device__ __forceinline__ std::int64_t first_partial_of(const Args& args, const work_item& item,
                                                         int kv_head, int block_q) {
  return static_cast<std::int64_t>(item.place) * args.call.kv_heads * args.list.place_rows +
         static_cast<std::int64_t>(kv_head) * item.splits * block_q;
}

}  // namespace tessera::kernels::attention::sm80
