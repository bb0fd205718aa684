// How the blocks that write a list of work (work_planner.hpp) pass over lists: what their threads
// tell each other, lists whose first elements lie in shared memory, sums over a list, the parts of
// its elements.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int planner_threads = 1024;

/// Numbers of tiles of keys that items may have at most: any; what fits in one wave of thread
/// blocks beside the rest of each tile of rows; what fills 1, 2, 3, 4, 6 or 8 waves.
inline constexpr int planner_choices = 8;
constexpr int waves_of_choice(int choice) {
  return choice < 6 ? choice - 1 : 2 * (choice - 3);
}
static_assert(waves_of_choice(planner_choices - 1) == schedule_sm80::most_waves);
inline constexpr int planner_warps = planner_threads / prim::cuda::warp_size;
static_assert(planner_warps == prim::cuda::warp_size);

/// Blocks that write items, which for long lists takes longer than finding out what they are.
constexpr int planner_blocks_for(std::int64_t items) {
  return items < 2 * planner_threads ? 1 : items < 8 * planner_threads ? 8 : 16;
}

/// Elements of a list that the planner has in shared memory: as many as fit, for a thousand
/// sequences and more. It passes over its lists several times, and the L2 cache is far.
inline constexpr int planner_near = 1280;

/// What the threads of the planner tell each other.
struct planner_state {
  planned_tile tiles[planner_near];  ///< these and the next three: see `near_list`
  int first_tiles[planner_near];
  int first_items[planner_near];
  int first_places[planner_near];
  int of_warps[2][2][planner_warps];    ///< by turn, then by list
  long long key_tiles[planner_warps];   ///< of all tiles of rows
  int longest;                          ///< of one of them
  int longest_of_groups;                ///< where groups have a kernel of their own: of theirs
  int items[planner_choices];           ///< by choice
  prim::divisor each[planner_choices];  ///< tiles of keys of an item, by choice
  prim::divisor best;
};
static_assert(sizeof(planner_state) <= 48 << 10);

/// A list of the workspace whose first elements lie in shared memory; `Read`: kernels after the
/// planner read it, so that these are in the workspace as well. All blocks have the same elements.
template <class T, bool Read>
struct near_list {
  T* near;
  T* far;
  __device__ __forceinline__ const T& operator[](int i) const {
    return i < planner_near ? near[i] : far[i];
  }
  __device__ __forceinline__ void set(int i, const T& x) const {
    if (i < planner_near) near[i] = x;
    if ((Read && blockIdx.x == 0) || i >= planner_near) far[i] = x;
  }
};

/// `N` numbers, of lists that are summed at the same time.
template <int N>
struct numbers {
  int of[N];
};

/// Sums of `own` over the threads before this one; `totals`: of all. A call of the next turn lies
/// between two of the same.
template <int N>
__device__ __forceinline__ numbers<N> sums_before(const numbers<N>& own, planner_state& state,
                                                  int turn, numbers<N>& totals) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  numbers<N> sums;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    sums.of[n] = prim::cuda::inclusive_sum_of_warp(own.of[n], lane);
    if (lane == prim::cuda::warp_size - 1) state.of_warps[turn][n][warp] = sums.of[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int of_warp = state.of_warps[turn][n][lane];
    totals.of[n] = __reduce_add_sync(prim::cuda::all_lanes, of_warp);
    sums.of[n] += __reduce_add_sync(prim::cuda::all_lanes, lane < warp ? of_warp : 0) - own.of[n];
  }
  return sums;
}

/// set(i, sums) with the sums of `count_of(j)` over j < i, at most `most`, for i from 0 to `count`;
/// returns those of all. Numbers of `planner_threads` elements do not overflow. A thread has two
/// elements side by side where there are more than threads.
template <int N, class CountOf, class Set>
__device__ __forceinline__ numbers<N> sums_of(int count, const numbers<N>& most,
                                              planner_state& state, const CountOf& count_of,
                                              const Set& set) {
  numbers<N> base{};
  int turn = 0;
  const int each = count > planner_threads ? 2 : 1;
  for (int begin = 0; begin < count; begin += planner_threads * each, turn ^= 1) {
    const int i = begin + static_cast<int>(threadIdx.x) * each;
    numbers<N> own{}, next{}, totals{};
    if (i < count) own = count_of(i);
    numbers<N> both = own;
    if (each > 1 && i + 1 < count) {
      next = count_of(i + 1);
#pragma unroll
      for (int n = 0; n < N; ++n) both.of[n] = min(own.of[n] + next.of[n], most.of[n]);
    }
    numbers<N> sums = sums_before(both, state, turn, totals);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sums.of[n] = min(base.of[n] + sums.of[n], most.of[n]);
      base.of[n] = min(base.of[n] + totals.of[n], most.of[n]);
    }
    if (i < count) set(i, sums);
    if (each > 1 && i + 1 < count) {
#pragma unroll
      for (int n = 0; n < N; ++n) sums.of[n] = min(sums.of[n] + own.of[n], most.of[n]);
      set(i + 1, sums);
    }
  }
  if (threadIdx.x == 0) set(count, base);
  __syncthreads();
  return base;
}

/// visit(i, part, n) for each n below firsts[count]: part n - firsts[i] of i, which has the parts
/// firsts[i] to firsts[i + 1] - 1. Each n is looked up, so that all threads of `blocks` blocks have
/// as many, however many parts an i has; first where it is if all have as many.
template <class Firsts, class Visit>
__device__ __forceinline__ void visit_parts(const Firsts& firsts, int count, int block, int blocks,
                                            const Visit& visit) {
  const int end = firsts[count];
  const float of_part = static_cast<float>(count) / static_cast<float>(max(1, end));
  for (int n = block * planner_threads + static_cast<int>(threadIdx.x); n < end;
       n += blocks * planner_threads) {
    int i = min(static_cast<int>((static_cast<float>(n) + 0.5f) * of_part), count - 1);
    int behind = i + 1;
    if (firsts[i] > n || firsts[behind] <= n) {
      i = 0;
      behind = count;
    }
    while (behind - i > 1) {
      const int middle = (i + behind) / 2;
      const bool before = firsts[middle] <= n;
      i = before ? middle : i;
      behind = before ? behind : middle;
    }
    visit(i, n - firsts[i], n);
  }
}

}  // namespace tessera::kernels::attention::sm80
