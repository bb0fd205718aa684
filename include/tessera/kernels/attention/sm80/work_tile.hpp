// Which query rows and keys a thread block works on, in which order blocks are handed out, and what
// a block keeps of that in shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Rows [first_row, first_row + rows) of the folded axis of one sequence and key/value head: row r
/// is query r / group of head r % group of the head's group.
struct work_tile {
  prim::sequence seq{};
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;  ///< to write; 0: nothing to do
  int used = 0;  ///< of these, inside the sequence's used length
};

/// What a split says of the maximum of a row: NaN where some logit is, which maxima leave out, so
/// that its weight beside other splits is NaN and not 0.
__device__ __forceinline__ float maximum_left(const prim::softmax_state& state) {
  return state.denominator == state.denominator ? state.maximum : state.denominator;
}

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
  seq.q_len = cut_to(cut_to(seq.q_len, call.q_len - seq.q_begin), call.most_rows);
  seq.k_len = cut_to(cut_to(seq.k_len, call.kv_len - seq.k_begin), call.most_keys);
  return seq;
}

/// Dense launches: sections of heads one after the other, so that their keys and values stay in the
/// L2 cache, and in a section the last rows first, which see most keys under a causal mask.
template <class Traits>
__device__ __forceinline__ work_tile dense_work_tile(const launch_args& args, int index) {
  const attention_kernel_args& call = args.call;
  const int heads = static_cast<int>(call.batch) * call.kv_heads;
  const int section = args.section_tiles.quotient(index);
  const int first_head = section * static_cast<int>(args.section.value);
  const int inside = index - section * static_cast<int>(args.section_tiles.value);
  const bool last = first_head + static_cast<int>(args.section.value) > heads;
  const divisor& here = last ? args.last_section : args.section;
  const int block = here.quotient(inside);
  const int head = first_head + inside - block * static_cast<int>(here.value);
  work_tile work;
  const int entry = args.kv_heads.quotient(head);
  work.seq = sequence_of(call, entry);
  work.kv_head = head - entry * call.kv_heads;
  work.first_row = (args.row_blocks - 1 - block) * Traits::block_q;
  const int group = static_cast<int>(args.group.value);
  const int all = static_cast<int>(call.q_len) * group;
  work.rows = min(Traits::block_q, all - work.first_row);
  const int used = static_cast<int>(work.seq.q_len) * group - work.first_row;
  work.used = max(0, min(used, work.rows));
  return work;
}

/// Packed launches: block `index` / kv_heads, counted over the sequences; one more "sequence" holds
/// the rows behind the last. Every warp finds the same answer.
template <class Traits>
__device__ __forceinline__ work_tile packed_work_tile(const launch_args& args, int index) {
  const attention_kernel_args& call = args.call;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const auto sequences = static_cast<int>(sequences_in_use(call));
  int block = args.kv_heads.quotient(index);
  work_tile work;
  work.kv_head = index - block * call.kv_heads;
  for (int base = 0; base <= sequences; base += prim::cuda::warp_size) {
    const int n = base + lane;
    int begin = 0;
    int rows = 0;
    if (n <= sequences) {
      const int all = static_cast<int>(call.q_len);
      begin = max(0, min(call.cu_seqlens_q[n], all));
      const int end = n < sequences ? max(0, min(call.cu_seqlens_q[n + 1], all)) : all;
      rows = max(0, end - begin) * static_cast<int>(args.group.value);
    }
    const int blocks = (rows + Traits::block_q - 1) / Traits::block_q;
    const int sum = prim::cuda::inclusive_sum_of_warp(blocks, lane);
    const unsigned past = __ballot_sync(prim::cuda::all_lanes, sum > block);
    if (past == 0) {
      block -= __shfl_sync(prim::cuda::all_lanes, sum, prim::cuda::warp_size - 1);
      continue;
    }
    const int nearest = __ffs(static_cast<int>(past)) - 1;
    const int sequence = base + nearest;
    // The last rows of a sequence first: they see most keys under a causal mask.
    work.first_row =
        (__shfl_sync(prim::cuda::all_lanes, sum, nearest) - 1 - block) * Traits::block_q;
    work.rows =
        min(Traits::block_q, __shfl_sync(prim::cuda::all_lanes, rows, nearest) - work.first_row);
    work.seq.index = sequence;
    if (sequence < sequences) {
      work.seq = sequence_of(call, sequence);
      const int used =
          static_cast<int>(work.seq.q_len) * static_cast<int>(args.group.value) - work.first_row;
      work.used = max(0, min(used, work.rows));
    } else {
      work.seq.index = 0;
      work.seq.q_begin = __shfl_sync(prim::cuda::all_lanes, begin, nearest);
    }
    break;
  }
  return work;
}

/// Keys of a sequence in pages that has one query.
__device__ __forceinline__ std::int64_t keys_of_sequence(const attention_kernel_args& call,
                                                         int sequence) {
  return cut_to(cut_to(call.seqlens_k[sequence], call.kv_len), call.most_keys);
}

/// Launches with one query of each sequence.
__device__ __forceinline__ work_tile single_work_tile(const launch_args& args, int sequence,
                                                      int kv_head) {
  work_tile work;
  work.seq.index = sequence;
  work.seq.q_len = 1;
  work.seq.k_len = keys_of_sequence(args.call, sequence);
  work.kv_head = kv_head;
  work.rows = work.used = static_cast<int>(args.group.value);
  return work;
}

/// Whether every sequence has one query: by the kernel, or of elements of 8 bits, whose rows
/// of heads have one kernel for a type, by the launch.
template <class Traits>
__device__ __forceinline__ bool has_single_queries(const launch_args& args) {
  if constexpr (Traits::codes && !Traits::grouped &&
                Traits::config.phase == attention_phase::decode) {
    return args.single;
  }
  return Traits::single;
}

template <class Traits>
__device__ __forceinline__ work_tile work_tile_of(const launch_args& args, int index) {
  if (has_single_queries<Traits>(args)) {
    const int sequence = args.kv_heads.quotient(index);
    return single_work_tile(args, sequence, index - sequence * args.call.kv_heads);
  }
  return args.call.cu_seqlens_q != nullptr ? packed_work_tile<Traits>(args, index)
                                           : dense_work_tile<Traits>(args, index);
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

/// The keys a block looks at, in tiles of block_kv from key 0 of the sequence on.
struct key_range {
  int begin = 0, end = 0;             ///< keys that some row sees lie here
  int full_begin = 0, full_end = 0;   ///< keys here are inside every row's interval
  int first_tile = 0, last_tile = 0;  ///< [first, last) of this block's split
};

/// All the keys of a block, in tiles of `block_kv`.
template <mask_mode Mode>
__device__ __forceinline__ key_range visible_keys(const launch_args& args, const work_tile& work,
                                                  const prim::row_visibility<Mode>& visible,
                                                  int block_kv) {
  key_range keys;
  if (work.used == 0) return keys;
  const prim::block_intervals block =
      visible.keys_of(query_of(args, work.kv_head, work.first_row).query,
                      query_of(args, work.kv_head, work.first_row + work.used - 1).query);
  keys.begin = static_cast<int>(block.some.begin);
  keys.end = static_cast<int>(block.some.end);
  keys.full_begin = static_cast<int>(block.all.begin);
  keys.full_end = static_cast<int>(block.all.end);
  if (keys.begin >= keys.end) return keys;
  keys.first_tile = keys.begin / block_kv;
  keys.last_tile = (keys.end + block_kv - 1) / block_kv;
  return keys;
}

/// The keys of a single query, which is the last token.
__device__ __forceinline__ key_range keys_of_single(const launch_args& args, const work_tile& work,
                                                    int block_kv) {
  key_range keys;
  keys.end = keys.full_end = static_cast<int>(work.seq.k_len);
  if (keys.end == 0) return keys;
  const int before = keys.end - 1;
  const std::int64_t left = args.call.window_left;
  keys.begin = keys.full_begin = left < before ? before - static_cast<int>(left) : 0;
  keys.first_tile = keys.begin / block_kv;
  keys.last_tile = (keys.end + block_kv - 1) / block_kv;
  return keys;
}

/// Tiles [first, last) become those of part `split` of `splits`, which differ by at most one; each
/// has `each` or one more.
__device__ __forceinline__ void cut_tiles(int& first, int& last, int each, int splits, int split) {
  const int more = last - first - each * splits;  // splits with a tile more
  first += split * each + min(split, more);
  last = first + each + (split < more ? 1 : 0);
}

template <class Traits>
__device__ __forceinline__ key_range
keys_of_block(const launch_args& args, const work_tile& work,
              const prim::row_visibility<Traits::config.mask>& visible, int split) {
  key_range keys;
  if (has_single_queries<Traits>(args)) {
    keys = keys_of_single(args, work, Traits::block_kv);
  } else {
    keys = visible_keys(args, work, visible, Traits::block_kv);
  }
  if (keys.begin < keys.end) {
    const int each = args.split_count.quotient(keys.last_tile - keys.first_tile);
    cut_tiles(keys.first_tile, keys.last_tile, each, args.splits, split);
  }
  return keys;
}

/// Row `half` of row tile m that a thread holds, counted from the block's first: accumulators have
/// rows g and g + 8 of 16 (prim/cuda/matrix_unit.hpp).
template <class Traits>
__device__ __forceinline__ int row_of_thread(int thread, int m, int half) {
  return thread / 32 * Traits::rows_of_warp + m * 16 + half * 8 + thread % 32 / 4;
}

/// What products with the rows of a block are to be multiplied by: powers of two, times the scale
/// of the head of keys where that has one and logits are products.
template <int Rows>
struct query_units {
  float of[Rows];
};
struct no_query_units {};

/// What all threads of a block know and rarely need. It lies in shared memory, because every
/// register counts in the loop.
template <mask_mode Mode, class Source, class TileBits, class QueryUnits = no_query_units>
struct block_state {
  key_range keys;
  Source k;  ///< of the sequence and head
  Source v;
  work_tile work;
  TileBits tile_bits;
  QueryUnits query_units;
  prim::row_visibility<Mode> visible;
  bool changes_queries = false;  ///< the queries are still to be divided, or to turn their signs
  bool careful = false;          ///< a sum was not finite: run again and look at every value
};

/// Query and head of row `row` of a block; `State` is a `block_state`.
template <class State>
__device__ __forceinline__ query_row query_at(const launch_args& args, const State& block,
                                              int row) {
  return query_of(args, block.work.kv_head, block.work.first_row + row);
}

}  // namespace tessera::kernels::attention::sm80
