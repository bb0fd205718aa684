// The entries of a batch and their tiles of rows as the planner (work_planner.hpp) sees them: how
// many rows each has, and which keys these see.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/planner_lists.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::attention::sm80 {

/// Tiles that the rows of an entry make.
template <class Kernel>
__device__ __forceinline__ int row_tiles_of(const launch_args& args, const work_entry& entry) {
  constexpr int rows = resolved(Kernel::config).block_q;
  constexpr int own = schedule_sm80::own_config(Kernel::config).block_q;
  return args.list.apart && !entry.is_prefix ? (entry.rows + own - 1) / own
                                             : (entry.rows + rows - 1) / rows;
}

/// The keys that the group of a sequence shares, in whole tiles; -1: it has no group. As
/// prefix_of_sequence finds them, whatever the numbers of the device are.
template <class Kernel, bool Plain>
__device__ __forceinline__ int keys_of_group(const launch_args& args, const planner_state& state,
                                             int sequence) {
  const auto groups = static_cast<int>(args.call.prefixes.count);
  if (!Plain && groups > planner_groups) {
    const auto prefix = prefix_of_sequence(args.call, sequence);
    return prefix < 0 ? -1
                      : whole_steps(args, static_cast<int>(keys_of_prefix(args.call, prefix)),
                                    resolved(Kernel::config).block_kv);
  }
  int low = 0;
  for (int high = groups; low < high;) {
    const int middle = (low + high) / 2;
    const bool before = state.group_begins[middle + 1] <= sequence;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low < groups && state.group_begins[low] <= sequence ? state.group_keys[low] : -1;
}

/// Packed queries that are the last tokens of their sequences.
TESSERA_HD TESSERA_INLINE bool has_packed_last_tokens(const attention_kernel_args& call) {
  return call.cu_seqlens_q != nullptr && call.cu_seqlens_k == nullptr &&
         call.seqlens_k != nullptr && !call.top_left && call.window_right >= 0 &&
         call.window_left >= 0;
}
/// Single last tokens of all sequences, and the planner has what groups share in shared memory; or
/// packed ones, and nothing is shared.
__device__ __forceinline__ bool plans_plain_queries(const attention_kernel_args& call) {
  const auto groups = call.prefixes.count;
  return (has_last_tokens(call) && call.num_seqs == nullptr && groups <= planner_groups) ||
         (has_packed_last_tokens(call) && groups == 0);
}

/// What all entries of a call have in common, in numbers of 32 bits; all threads have it in
/// registers.
struct plan_numbers {
  int sequences = 0;  ///< packed: in use
  int tokens = 0, most_rows = 0, most_keys = 0;
  int left = 0, right = 0;  ///< window
};
__device__ __forceinline__ plan_numbers plan_numbers_of(const attention_kernel_args& call) {
  const auto bound = [](std::int64_t most) { return static_cast<int>(min(most, longest_length)); };
  return {.sequences = static_cast<int>(sequences_in_use(call)),
          .tokens = static_cast<int>(call.q_len),
          .most_rows = bound(call.most_rows),
          .most_keys = bound(min(call.kv_len, call.most_keys)),
          .left = bound(call.window_left),
          .right = call.causal ? 0 : bound(call.window_right)};
}

/// Keys of a sequence, as keys_of_sequence has them.
__device__ __forceinline__ int keys_in_plan(const attention_kernel_args& call,
                                            const plan_numbers& numbers, int sequence) {
  return max(0, min(call.seqlens_k[sequence], numbers.most_keys));
}

/// A packed sequence, and the rows behind the last.
__device__ __forceinline__ work_entry packed_entry(const attention_kernel_args& call,
                                                   const plan_numbers& numbers, int number) {
  work_entry of;
  of.used = number < numbers.sequences;
  const int first = call.cu_seqlens_q[number];
  const int rest = numbers.tokens - max(0, min(first, numbers.tokens));
  of.seq.q_len = rest;
  if (of.used) {
    // Wrong offsets may be 2^32 apart: no more than this many tokens count.
    const int behind = call.cu_seqlens_q[number + 1];
    const unsigned length =
        behind > first ? static_cast<unsigned>(behind) - static_cast<unsigned>(first) : 0u;
    of.seq.q_len =
        min(min(length, static_cast<unsigned>(rest)), static_cast<unsigned>(numbers.most_rows));
    of.seq.k_len = keys_in_plan(call, numbers, number);
  }
  return of;
}

/// As entry_of, without the prefix. Of plain queries few numbers are looked at: thousands of
/// entries pass through one multiprocessor.
template <class Kernel, bool Plain>
__device__ __forceinline__ work_entry entry_in_plan(const launch_args& args,
                                                    const planner_state& state,
                                                    const plan_numbers& numbers, int number) {
  if constexpr (!Plain) return entry_of(args, number, resolved(Kernel::config).block_kv, false);
  const attention_kernel_args& call = args.call;
  const auto groups = static_cast<int>(call.prefixes.count);
  const auto batch = static_cast<int>(call.batch);
  work_entry of;
  if (call.cu_seqlens_q != nullptr) {
    of = packed_entry(call, numbers, number);
    of.rows = static_cast<int>(of.seq.q_len) * static_cast<int>(args.group.value);
    return of;
  }
  of.is_prefix = number < groups;
  if (of.is_prefix) {
    const int keys = state.group_keys[number];
    const int begin = max(0, min(state.group_begins[number], batch));
    const int end = max(0, min(state.group_begins[number + 1], batch));
    of.seq.k_len = keys;
    of.seq.q_len = keys > 0 ? end - begin : 0;
  } else {
    of.seq.q_len = 1;
    of.seq.k_len = keys_in_plan(call, numbers, number - groups);
  }
  of.rows = static_cast<int>(of.seq.q_len) * static_cast<int>(args.group.value);
  return of;
}

/// Keys of rows of a sequence whose queries are its last tokens: as visible_keys has them, in
/// numbers of 32 bits.
__device__ __forceinline__ key_range keys_of_last_rows(const launch_args& args,
                                                       const plan_numbers& numbers,
                                                       const work_tile& work, int block_kv) {
  key_range keys;
  if (work.used == 0) return keys;
  const auto length = static_cast<int>(work.seq.k_len);
  const int offset = length - static_cast<int>(work.seq.q_len);
  const int first = args.group.quotient(work.first_row) + offset;
  const int behind = args.group.quotient(work.first_row + work.used - 1) + offset + 1;
  keys.begin = max(0, first - numbers.left);
  keys.end = behind + min(numbers.right, length - behind);
  if (keys.begin >= keys.end) return keys;
  keys.first_tile = keys.begin / block_kv;
  keys.last_tile = (keys.end + block_kv - 1) / block_kv;
  return keys;
}

/// Keys of a tile of rows of an entry, in tiles of `block_kv`, a constant.
template <mask_mode Mode, bool Plain>
__device__ __forceinline__ key_range keys_of_tile(const launch_args& args,
                                                  const plan_numbers& numbers,
                                                  const work_entry& entry, const work_tile& work,
                                                  int block_kv) {
  if (entry.is_prefix) {
    key_range keys;
    keys.last_tile = static_cast<int>(entry.seq.k_len) / block_kv;
    return keys;
  }
  if constexpr (Plain) return keys_of_last_rows(args, numbers, work, block_kv);
  return visible_keys(args, work, visibility_of<Mode>(args.call, entry.seq), block_kv);
}

/// Tile `part` of an entry, and its keys.
template <class Kernel, bool Plain>
__device__ __forceinline__ planned_tile planned_tile_of(const launch_args& args,
                                                        const planner_state& state,
                                                        const plan_numbers& numbers, int number,
                                                        int part) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr attention_config own = schedule_sm80::own_config(Kernel::config);
  const work_entry entry = entry_in_plan<Kernel, Plain>(args, state, numbers, number);
  const bool apart =
      schedule_sm80::has_own_kernel(Kernel::config) && args.list.apart && !entry.is_prefix;
  planned_tile planned;
  planned.entry = number;
  // The last rows of a sequence first: they see most keys.
  const int block_q = apart ? own.block_q : config.block_q;
  planned.first_row = (row_tiles_of<Kernel>(args, entry) - 1 - part) * block_q;
  const work_tile work = tile_of(entry, 0, planned.first_row, block_q);
  const key_range keys =
      apart ? keys_of_tile<config.mask, Plain>(args, numbers, entry, work, own.block_kv)
            : keys_of_tile<config.mask, Plain>(args, numbers, entry, work, config.block_kv);
  planned.first_tile = keys.first_tile;
  planned.last_tile = static_cast<unsigned>(keys.last_tile);
  planned.joined = entry.is_prefix ? 1 : 0;
  const auto prefixes = static_cast<int>(args.call.prefixes.count);
  if (prefixes > 0 && !entry.is_prefix && entry.used) {
    const int shared = keys_of_group<Kernel, Plain>(args, state, number - prefixes);
    if (shared >= 0) {
      planned.joined = 1;
      planned.first_tile =
          max(keys.first_tile, apart ? shared / own.block_kv : shared / config.block_kv);
      planned.last_tile = static_cast<unsigned>(max(keys.last_tile, planned.first_tile));
    }
  }
  return planned;
}

}  // namespace tessera::kernels::attention::sm80
