// Which query rows a work tile has, and in which order tiles are handed out. By a whole warp, of
// which every lane knows the answer. Which keys the rows see: plan_tile.hpp.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// `number` cut to 0 ... `most`: nobody has looked at lengths in device memory.
__device__ __forceinline__ int cut_to(std::int64_t number, std::int64_t most) {
  return static_cast<int>(number < 0 ? 0 : (number < most ? number : most));
}

/// The sequence as the tile has it, with every length cut to the tensors.
__device__ __forceinline__ void set_sequence(work_tile& work, const attention_kernel_args& call,
                                             int index) {
  const prim::sequence seq = attention::sequence_of(call, index);
  work.sequence = index;
  work.q_begin = cut_to(seq.q_begin, call.q_len);
  work.k_begin = cut_to(seq.k_begin, call.kv_len);
  work.q_len = cut_to(cut_to(seq.q_len, call.q_len - work.q_begin), call.most_rows);
  work.k_len = cut_to(cut_to(seq.k_len, call.kv_len - work.k_begin), call.most_keys);
}

__device__ __forceinline__ prim::sequence sequence_of(const work_tile& work) {
  return {work.sequence, work.q_begin, work.k_begin, work.q_len, work.k_len};
}

__device__ __forceinline__ void set_heads(work_tile& work, const launch_args& args,
                                          int head_block) {
  work.first_head = head_block * static_cast<int>(args.heads_of_tile.value);
  work.kv_head = args.group.quotient(work.first_head);
}

/// Rows of `tokens` tokens from `work.first_query` on, of which those before `work.q_len` are used.
__device__ __forceinline__ void set_rows(work_tile& work, const launch_args& args, int tokens) {
  const int heads = static_cast<int>(args.heads_of_tile.value);
  work.rows = tokens * heads;
  work.used = max(0, min(work.rows, (work.q_len - work.first_query) * heads));
}

/// Block `block` of the `blocks` that `queries` rows of a sequence and a head are cut into. The
/// tile that is not full is the first where later rows see more keys
/// (`launch_args::lacking_tokens`).
__device__ __forceinline__ void set_block(work_tile& work, const launch_args& args, int block,
                                          int blocks, int queries) {
  const int lacking = (blocks * args.tokens_of_tile - queries) & args.lacking_tokens;
  work.first_query = max(0, block * args.tokens_of_tile - lacking);
  const int end = min(queries, (block + 1) * args.tokens_of_tile - lacking);
  set_rows(work, args, end - work.first_query);
}

/// Block `block` of the rows of an entry, of head block `head_block`.
__device__ __forceinline__ work_tile entry_work_tile(const launch_args& args, int entry,
                                                     int head_block, int block) {
  work_tile work;
  set_sequence(work, args.call, entry);
  set_heads(work, args, head_block);
  work.block = entry * args.row_blocks + block;
  set_block(work, args, block, args.row_blocks, static_cast<int>(args.call.q_len));
  return work;
}

/// Dense launches: sections of heads one after the other, so that their keys and values stay in the
/// L2 cache, and in a section the last rows first, which see most keys under a causal mask.
__device__ __forceinline__ work_tile dense_work_tile(const launch_args& args, int index) {
  const int head_blocks =
      static_cast<int>(args.call.batch) * static_cast<int>(args.head_blocks.value);
  const int section = args.section_tiles.quotient(index);
  const int first = section * static_cast<int>(args.section.value);
  const int inside = index - section * static_cast<int>(args.section_tiles.value);
  const bool last = first + static_cast<int>(args.section.value) > head_blocks;
  const divisor& here = last ? args.last_section : args.section;
  const int block = here.quotient(inside);
  const int head_block = first + inside - block * static_cast<int>(here.value);
  const int entry = args.head_blocks.quotient(head_block);
  return entry_work_tile(args, entry, head_block - entry * static_cast<int>(args.head_blocks.value),
                         args.row_blocks - 1 - block);
}

/// Packed launches: block `index` / head_blocks, counted over the sequences; one more "sequence"
/// holds the rows behind the last.
__device__ __forceinline__ work_tile packed_work_tile(const launch_args& args, int index) {
  const attention_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int sequences = static_cast<int>(sequences_in_use(call));
  int block = args.head_blocks.quotient(index);
  work_tile work;
  set_heads(work, args, index - block * static_cast<int>(args.head_blocks.value));
  work.block = block;
#pragma unroll 1
  for (int base = 0; base <= sequences; base += prim::cuda::warp_size) {
    const int n = base + lane;
    int begin = 0;
    int queries = 0;
    if (n <= sequences) {
      const int all = static_cast<int>(call.q_len);
      begin = max(0, min(call.cu_seqlens_q[n], all));
      const int end = n < sequences ? max(0, min(call.cu_seqlens_q[n + 1], all)) : all;
      queries = max(0, end - begin);
    }
    const int blocks = (queries + args.tokens_of_tile - 1) / args.tokens_of_tile;
    const int sum = prim::cuda::inclusive_sum_of_warp(blocks, lane);
    const unsigned past = __ballot_sync(prim::cuda::all_lanes, sum > block);
    if (past == 0) {
      block -= __shfl_sync(prim::cuda::all_lanes, sum, prim::cuda::warp_size - 1);
      continue;
    }
    const int nearest = __ffs(static_cast<int>(past)) - 1;
    const int sequence = base + nearest;
    if (sequence < sequences) {
      set_sequence(work, call, sequence);
    } else {
      work.q_begin = __shfl_sync(prim::cuda::all_lanes, begin, nearest);
    }
    // The last rows of a sequence first: they see most keys under a causal mask.
    const int from_last = __shfl_sync(prim::cuda::all_lanes, sum, nearest) - 1 - block;
    set_block(work, args, from_last, __shfl_sync(prim::cuda::all_lanes, blocks, nearest),
              __shfl_sync(prim::cuda::all_lanes, queries, nearest));
    break;
  }
  return work;
}

/// The first and the last of the used queries that rows [first_row, first_row + rows) have.
struct query_span {
  int first, last;
};
__device__ __forceinline__ query_span queries_of(const launch_args& args, const work_tile& work,
                                                 int first_row, int rows) {
  const int end = min(first_row + rows, work.used);
  return {work.first_query + args.heads_of_tile.quotient(first_row),
          work.first_query + args.heads_of_tile.quotient(end - 1)};
}

/// Which part of its tile an item is.
template <class Traits>
__device__ __forceinline__ int part_of(const launch_args& args,
                                       const planned_tile<Traits>& planned) {
  const int tile = args.parts.quotient(planned.piece);
  return planned.piece - tile * static_cast<int>(args.parts.value);
}

/// Whether the work of the launch is a list (sm80/work_list.hpp).
template <class Traits>
__device__ __forceinline__ bool is_listed(const launch_args& args) {
  return Traits::lists && args.list.items != nullptr;
}

/// The rows of an item. Single tokens of sequences are rows of one tensor.
template <class Traits>
__device__ __forceinline__ work_tile listed_work_tile(const launch_args& args,
                                                      const sm80::work_item& item, int head_block) {
  const sm80::work_entry entry = sm80::entry_of(args, item.entry, Traits::block_kv, false);
  work_tile work;
  work.sequence = static_cast<int>(entry.seq.index);
  work.q_begin = static_cast<int>(are_rows_apart(args.call) ? entry.seq.index : entry.seq.q_begin);
  work.q_len = entry.used ? static_cast<int>(entry.seq.q_len) : 0;
  work.k_len = static_cast<int>(entry.seq.k_len);
  set_heads(work, args, head_block);
  work.first_query = args.heads_of_tile.quotient(item.first_row);
  set_rows(work, args,
           min(args.tokens_of_tile, static_cast<int>(entry.seq.q_len) - work.first_query));
  return work;
}

/// The query of row `row` of a tile, and its head.
struct query_row {
  int query, head;
};
__device__ __forceinline__ query_row query_of(const launch_args& args, const work_tile& work,
                                              int row) {
  const int query = args.heads_of_tile.quotient(row);
  return {work.first_query + query,
          work.first_head + row - query * static_cast<int>(args.heads_of_tile.value)};
}

/// Index of a tile's sequence in tensors: packed ones have one entry.
__device__ __forceinline__ int entry_of(const attention_kernel_args& call, const work_tile& work) {
  return call.cu_seqlens_q != nullptr ? 0 : work.sequence;
}

/// The same of q and out, of which a list has the single rows of all sequences in one entry.
template <class Traits>
__device__ __forceinline__ int entry_of_rows(const launch_args& args, const work_tile& work) {
  const bool joined = is_listed<Traits>(args) && are_rows_apart(args.call);
  return joined ? 0 : entry_of(args.call, work);
}

/// Element (sequence, row of the tensor, head, 0).
template <class Stored = std::uint16_t>
__device__ __forceinline__ Stored* token_row(const void* data, const row_strides& strides,
                                             int sequence, std::int64_t row, int head) {
  auto* elements = const_cast<Stored*>(static_cast<const Stored*>(data));
  return elements + sequence * strides.batch + row * strides.row + head * strides.head;
}

}  // namespace tessera::kernels::attention::sm90
