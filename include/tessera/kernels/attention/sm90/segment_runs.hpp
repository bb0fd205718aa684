// Segments whose keys lie side by side, as those of documents packed one behind the other do: each
// row then sees an interval of keys, and a kernel without segments makes them, with the tiles and
// the loop of plain rows. Whether they lie so is known on the device alone: a kernel finds the keys
// of each row, and both forward kernels are queued, of which one ends at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// The row of a kernel whose segments have become intervals: that of the plain row.
template <class Kernel>
struct run_row {
  static constexpr bool reads_runs = true;
  static constexpr attention_config config{.target = Kernel::config.target,
                                           .type = Kernel::config.type,
                                           .head_dim = Kernel::config.head_dim,
                                           .v_head_dim = Kernel::config.v_head_dim};
};

/// Rows with segments and nothing else that looks at every score but a cap, which is then not asked
/// for.
template <class Traits>
inline constexpr bool finds_runs = Traits::has(attention_feature::segments) &&
                                   !Traits::calls_functors && !Traits::walks_tiles &&
                                   Traits::config.features
                                       .without(base_features | attention_feature::segments |
                                                attention_feature::soft_cap)
                                       .empty();

/// Whether a call is tried so.
inline bool tries_runs(const attention_kernel_args& args) {
  return args.q_segments.data != nullptr && args.soft_cap <= 0.0f && args.kv_end == nullptr &&
         schedule_sm90::gains_by_runs(schedule_sm90::sizes_of(args));
}

/// Of the intervals of rows, and a word for each entry.
inline std::size_t run_bytes(const attention_kernel_args& args) {
  if (!tries_runs(args)) return 0;
  const auto entries = static_cast<std::size_t>(args.batch);
  return (entries * static_cast<std::size_t>(args.q_len) * sizeof(row_keys) +
          entries * sizeof(int) + 15) /
         16 * 16;
}

inline constexpr int run_threads = 1024;  ///< each has a row
inline constexpr int most_runs = 1024;    ///< of an entry

/// Where an id begins, or ends.
struct run_edge {
  int id, key;
};

/// Collects the edges of runs of `k_len` keys. By a whole block; `counts` may be above `most_runs`.
__device__ __forceinline__ void collect_edges(const token_ids& segments, int entry, int k_len,
                                              run_edge (&begins)[most_runs],
                                              run_edge (&ends)[most_runs], int (&counts)[2]) {
  constexpr int at_once = 8;
  const std::int32_t* ids = segments.data + entry * segments.batch;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % prim::cuda::warp_size;
  const auto id_at = [&](int key) {
    return key >= 0 && key < k_len ? ids[key * segments.row] : -1;
  };
  const auto append = [&](int& count, run_edge(&edges)[most_runs], int id, int key) {
    const int place = atomicAdd(&count, 1);
    if (place < most_runs) edges[place] = {id, key};
  };
#pragma unroll 1
  for (int base = thread; base - thread < k_len; base += at_once * run_threads) {
    int id[at_once], beside[at_once];  // what a warp's first and last lane have outside of it
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int key = base + i * run_threads;
      id[i] = id_at(key);
      beside[i] = lane == 0 ? id_at(key - 1) : lane == 31 ? id_at(key + 1) : -1;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int key = base + i * run_threads;
      int before = __shfl_up_sync(prim::cuda::all_lanes, id[i], 1);
      int behind = __shfl_down_sync(prim::cuda::all_lanes, id[i], 1);
      if (lane == 0) before = beside[i];
      if (lane == 31) behind = beside[i];
      if (id[i] < 0) continue;
      if (before != id[i]) append(counts[0], begins, id[i], key);
      if (behind != id[i]) append(counts[1], ends, id[i], key + 1);
    }
  }
}

/// Finds the keys of `run_threads` rows of an entry. Every block looks at all keys.
template <class Kernel>
__global__ void __launch_bounds__(run_threads)
    find_runs(const __grid_constant__ launch_args args, int chunks) {
  __shared__ run_edge begins[most_runs], ends[most_runs];
  __shared__ int counts[2];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2) counts[thread] = 0;
  __syncthreads();
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const attention_kernel_args& call = args.call;
  const int entry = static_cast<int>(blockIdx.x) / chunks;
  const int chunk = static_cast<int>(blockIdx.x) - entry * chunks;
  work_tile work;
  set_sequence(work, call, entry);
  const int row = chunk * run_threads + thread;
  int own = -1;
  if (row < work.q_len) {
    own = call.q_segments.data[entry * call.q_segments.batch + row * call.q_segments.row];
  }
  collect_edges(call.kv_segments, entry, work.k_len, begins, ends, counts);
  __syncthreads();
  const int runs = counts[0];
  bool twice = runs > most_runs;
  if (thread < runs && !twice) {
    for (int i = 0; i < thread; ++i) twice = twice || begins[i].id == begins[thread].id;
  }
  twice = __syncthreads_or(twice ? 1 : 0) != 0;
  if (chunk == 0 && thread == 0) args.scattered[entry] = twice ? 1 : 0;
  if (twice || row >= call.q_len) return;
  row_keys keys;
  if (own >= 0) {
    for (int i = 0; i < runs; ++i) {
      if (begins[i].id == own) keys.begin = begins[i].key;
      if (ends[i].id == own) keys.end = ends[i].key;
    }
  }
  args.run_keys[entry * call.q_len + row] = keys;
}
static_assert(run_threads >= most_runs, "a thread for each run");

/// Whether a forward kernel, or the kernel that looks for it, has nothing to do, because the other
/// has: `runs` that of run_row. By a whole warp.
__device__ __forceinline__ bool is_for_other(const launch_args& args, bool runs) {
  if (args.scattered == nullptr) return false;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  bool scattered = false;
  for (int entry = lane; entry < args.call.batch; entry += prim::cuda::warp_size) {
    scattered = scattered || args.scattered[entry] != 0;
  }
  return prim::cuda::any_of_warp(scattered) == runs;
}

/// The keys of rows, of an entry that has runs, and the tiles of keys that follow from them. By a
/// whole warp with few registers.
template <class Traits, class Visible>
__device__ __forceinline__ void plan_runs(const launch_args& args, const Visible& visible,
                                          planned_tile<Traits>& planned) {
  constexpr int block_kv = Traits::block_kv;
  const work_tile& work = planned.work;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
#pragma unroll 1
  for (int row = lane; row < Traits::block_q; row += prim::cuda::warp_size) {
    row_keys keys;
    if (row < work.used) {
      const int query = work.first_query + args.heads_of_tile.quotient(row);
      const prim::key_interval seen = visible.keys_of(query);
      keys = {static_cast<int>(seen.begin), static_cast<int>(seen.end)};
      const row_keys run = args.run_keys[work.sequence * args.call.q_len + query];
      keys.begin = max(keys.begin, run.begin);
      keys.end = max(keys.begin, min(keys.end, run.end));
    }
    planned.keys[row] = keys;
  }
  __syncwarp();
  tile_range block;
#pragma unroll 1
  for (int n = 0; n < Traits::consumers; ++n) {
    row_keys some{longest_key, 0}, all{0, longest_key};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = n * rows_of_warpgroup + half * prim::cuda::warp_size + lane;
      if (row >= work.used) continue;
      const row_keys keys = planned.keys[row];
      if (keys.begin < keys.end) {
        some = {min(some.begin, keys.begin), max(some.end, keys.end)};
      }
      all = {max(all.begin, keys.begin), min(all.end, keys.end)};
    }
    some = {prim::cuda::minimum_of_warp(some.begin), prim::cuda::maximum_of_warp(some.end)};
    all = {prim::cuda::maximum_of_warp(all.begin), prim::cuda::minimum_of_warp(all.end)};
    tile_range range;
    if (some.begin < some.end) {
      range = {some.begin / block_kv, (some.end + block_kv - 1) / block_kv,
               (all.begin + block_kv - 1) / block_kv, all.end / block_kv};
      block.first = block.last == 0 ? range.first : min(block.first, range.first);
      block.last = max(block.last, range.last);
    }
    if (lane == 0) planned.tiles[n] = range;
  }
  if (lane == 0) planned.tiles[Traits::consumers] = block;
  __syncwarp();
}

}  // namespace tessera::kernels::attention::sm90
