// Which query rows and keys a thread block works on, and in which order blocks are handed out.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Rows [first_row, first_row + rows) of the folded axis of one sequence and key/value head: row r
/// is query r / group of head r % group of the head's group.
struct row_range {
  prim::sequence seq{};
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;     ///< to write; 0: nothing to do
  int visible = 0;  ///< of these, inside the sequence's used length
};

/// `number` cut to 0 ... `most`: nobody has looked at lengths in device memory.
__device__ __forceinline__ std::int64_t cut_to(std::int64_t number, std::int64_t most) {
  return number < 0 ? 0 : (number < most ? number : most);
}

/// attention::sequence_of with every length cut to the tensors.
__device__ __forceinline__ prim::sequence sequence_of(const attention_kernel_args& call,
                                                      std::int64_t index) {
  prim::sequence seq = attention::sequence_of(call, index);
  seq.q_begin = cut_to(seq.q_begin, call.q_len);
  seq.k_begin = cut_to(seq.k_begin, call.kv_len);
  seq.q_len = cut_to(seq.q_len, call.q_len - seq.q_begin);
  seq.k_len = cut_to(seq.k_len, call.kv_len - seq.k_begin);
  return seq;
}

/// Dense launches: sections of heads one after the other, so that their keys and values stay in the
/// L2 cache, and in a section the last rows first, which see most keys under a causal mask.
template <class Traits>
__device__ __forceinline__ row_range dense_rows(const launch_args& args, int item) {
  const attention_kernel_args& call = args.call;
  const int heads = static_cast<int>(call.batch) * call.kv_heads;
  const int section = args.section_items.quotient(item);
  const int first_head = section * static_cast<int>(args.section.value);
  const int inside = item - section * static_cast<int>(args.section_items.value);
  const bool last = first_head + static_cast<int>(args.section.value) > heads;
  const divisor& here = last ? args.last_section : args.section;
  const int block = here.quotient(inside);
  const int head = first_head + inside - block * static_cast<int>(here.value);
  row_range range;
  const int entry = args.kv_heads.quotient(head);
  range.seq = sequence_of(call, entry);
  range.kv_head = head - entry * call.kv_heads;
  range.first_row = (args.row_blocks - 1 - block) * Traits::block_q;
  const int group = static_cast<int>(args.group.value);
  const int all = static_cast<int>(call.q_len) * group;
  range.rows = min(Traits::block_q, all - range.first_row);
  const int used = static_cast<int>(range.seq.q_len) * group - range.first_row;
  range.visible = max(0, min(used, range.rows));
  return range;
}

/// Packed launches: block `item` / kv_heads, counted over the sequences; one more "sequence" holds
/// the rows behind the last. Every warp finds the same answer.
template <class Traits>
__device__ __forceinline__ row_range packed_rows(const launch_args& args, int item) {
  const attention_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int sequences = static_cast<int>(call.batch);
  int block = args.kv_heads.quotient(item);
  row_range range;
  range.kv_head = item - block * call.kv_heads;
  for (int base = 0; base <= sequences; base += prim::cuda::warp_size) {
    const int n = base + lane;
    int begin = 0;
    int rows = 0;
    if (n <= sequences) {
      const int all = static_cast<int>(call.q_len);
      begin = max(0, min(call.cu_seqlens_q[n], all));
      const int end = n < sequences ? min(call.cu_seqlens_q[n + 1], all) : all;
      rows = max(0, end - begin) * static_cast<int>(args.group.value);
    }
    const int blocks = (rows + Traits::block_q - 1) / Traits::block_q;
    const int sum = prim::cuda::inclusive_sum_of_warp(blocks, lane);
    const unsigned past = __ballot_sync(prim::cuda::all_lanes, sum > block);
    if (past == 0) {
      block -= __shfl_sync(prim::cuda::all_lanes, sum, prim::cuda::warp_size - 1);
      continue;
    }
    const int found = __ffs(static_cast<int>(past)) - 1;
    const int index = base + found;
    // The last rows of a sequence first: they see most keys under a causal mask.
    range.first_row =
        (__shfl_sync(prim::cuda::all_lanes, sum, found) - 1 - block) * Traits::block_q;
    range.rows =
        min(Traits::block_q, __shfl_sync(prim::cuda::all_lanes, rows, found) - range.first_row);
    range.seq.index = index;
    if (index < sequences) {
      range.seq = sequence_of(call, index);
      range.visible = range.rows;
    } else {
      range.seq.index = 0;
      range.seq.q_begin = __shfl_sync(prim::cuda::all_lanes, begin, found);
    }
    break;
  }
  return range;
}

template <class Traits>
__device__ __forceinline__ row_range rows_of_block(const launch_args& args, int item) {
  return args.call.cu_seqlens_q != nullptr ? packed_rows<Traits>(args, item)
                                           : dense_rows<Traits>(args, item);
}

/// Query of folded row `row`, and the head.
struct query_row {
  int query;
  int head;
};
__device__ __forceinline__ query_row query_of(const launch_args& args, int kv_head, int row) {
  const int group = static_cast<int>(args.group.value);
  if (group == 1) return {row, kv_head};
  const int query = args.group.quotient(row);
  return {query, kv_head * group + (row - query * group)};
}

/// Element (batch entry or sequence, row of the tensor, head, 0).
template <class Element, class Data>
__device__ __forceinline__ Element* token_row(Data* data, const row_strides& strides,
                                              const prim::sequence& seq, std::int64_t row,
                                              int head) {
  return static_cast<Element*>(data) + seq.index * strides.batch + row * strides.row +
         head * strides.head;
}

/// The same as units of 16 bits, which copies count.
template <class Traits>
__device__ __forceinline__ const std::uint16_t* token_units(const void* data,
                                                            const row_strides& strides,
                                                            const prim::sequence& seq,
                                                            std::int64_t row, int head) {
  return reinterpret_cast<const std::uint16_t*>(
      token_row<const typename Traits::stored>(data, strides, seq, row, head));
}

/// The keys a block looks at, in tiles of block_kv from key 0 of the sequence on.
struct key_range {
  int begin = 0, end = 0;             ///< keys that some row sees lie here
  int full_begin = 0, full_end = 0;   ///< keys here are inside every row's interval
  int first_tile = 0, last_tile = 0;  ///< [first, last) of this block's split
};

template <class Traits>
__device__ __forceinline__ key_range
keys_of_block(const launch_args& args, const row_range& range,
              const prim::row_visibility<Traits::config.mask>& visible, int split) {
  key_range keys;
  if (range.visible == 0) return keys;
  const prim::block_intervals block =
      visible.keys_of(query_of(args, range.kv_head, range.first_row).query,
                      query_of(args, range.kv_head, range.first_row + range.visible - 1).query);
  keys.begin = static_cast<int>(block.some.begin);
  keys.end = static_cast<int>(block.some.end);
  keys.full_begin = static_cast<int>(block.all.begin);
  keys.full_end = static_cast<int>(block.all.end);
  if (keys.begin >= keys.end) return keys;
  const int first = keys.begin / Traits::block_kv;
  const int last = (keys.end + Traits::block_kv - 1) / Traits::block_kv;
  const int each = (last - first) / args.splits;
  const int more = last - first - each * args.splits;  // splits with a tile more
  keys.first_tile = first + split * each + min(split, more);
  keys.last_tile = keys.first_tile + each + (split < more ? 1 : 0);
  return keys;
}

}  // namespace tessera::kernels::attention::sm80
