// How the blocks that write a list of work (work_planner.hpp) pass over lists: what their threads
// tell each other, lists whose first elements lie in shared memory, sums over a list, the parts of
// its elements, the order of items.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int planner_threads = 1024;

/// Numbers of tiles of keys that items may have at most: any; what fits in one wave of thread
/// blocks beside the rest of each tile of rows; what fills 1, 2, 3, 4, 6 or 8 waves; any at first,
/// and less towards the end of the list.
inline constexpr int planner_choices = 9;
inline constexpr int shrinking_choice = planner_choices - 1;
constexpr int waves_of_choice(int choice) {
  return choice < 6 ? choice - 1 : 2 * (choice - 3);
}
static_assert(waves_of_choice(shrinking_choice - 1) == schedule_sm80::most_waves);
inline constexpr int planner_warps = planner_threads / prim::cuda::warp_size;
static_assert(planner_warps == prim::cuda::warp_size);

/// Blocks that write items, which for long lists takes longer than finding out what they are.
constexpr int planner_blocks_for(std::int64_t items) {
  return items < planner_threads ? 1 : items < 8 * planner_threads ? 8 : 16;
}

/// Elements of a list that the planner has in shared memory: as many as fit, for a thousand
/// sequences and more. It passes over its lists several times, and the L2 cache is far.
inline constexpr int planner_near = 1536;
/// Groups with a prefix that it has there: the sequence each begins with, and the keys it shares.
inline constexpr int planner_groups = 511;

/// What the threads of the planner tell each other.
struct planner_state {
  planned_tile tiles[planner_near];  ///< these and the next three: see `near_list`
  int first_tiles[planner_near];     ///< once they are no longer asked for: `first_large`
  int first_items[planner_near];
  int first_places[planner_near];
  int group_begins[planner_groups + 1];  ///< of groups that share pages, if there is room for all
  int group_keys[planner_groups];        ///< that such a group shares, in whole tiles
  int of_warps[2][3][planner_warps];     ///< by turn, then by list
  long long key_tiles[planner_warps];    ///< of all tiles of rows
  int longest;                           ///< of one of them
  int longest_of_groups;                 ///< where groups have a kernel of their own: of theirs
  int items[planner_choices];            ///< by choice
  prim::divisor each[planner_choices];   ///< tiles of keys of an item, by choice
  prim::divisor best;
  bool shrinks;  ///< the choice is that items shrink
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

/// Sum over the warp of numbers below 2^57.
__device__ __forceinline__ long long sum_of_warp(long long x) {
  constexpr int bits = 26;
  const auto low = static_cast<unsigned>(x) & ((1u << bits) - 1);
  const auto high = static_cast<unsigned>(x >> bits);
  return (static_cast<long long>(__reduce_add_sync(prim::cuda::all_lanes, high)) << bits) +
         __reduce_add_sync(prim::cuda::all_lanes, low);
}

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
    numbers<N> own{}, both{}, totals{};
#pragma unroll 1
    for (int j = i; j < min(i + each, count); ++j) {  // short code: it is fetched once
      own = both;
      both = count_of(j);
#pragma unroll
      for (int n = 0; n < N; ++n) both.of[n] = min(own.of[n] + both.of[n], most.of[n]);
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
/// as many, however many parts an i has; first where it is if all have as many, or all before
/// `border` and all behind it, then beside that.
template <class Firsts, class Visit>
__device__ __forceinline__ void visit_parts(const Firsts& firsts, int border, int count, int block,
                                            int blocks, const Visit& visit) {
  const int end = firsts[count];
  const int parts_before = firsts[border];
  const float of_part_before =
      __fdividef(static_cast<float>(border), static_cast<float>(max(1, parts_before)));
  const float of_part_behind = __fdividef(static_cast<float>(count - border),
                                          static_cast<float>(max(1, end - parts_before)));
  // Warps of all blocks have some before one of them has more: what a block does takes as long as
  // its instructions, all of one multiprocessor.
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  for (int n = (warp * blocks + block) * prim::cuda::warp_size + lane; n < end;
       n += blocks * planner_threads) {
    const bool before_border = n < parts_before;
    const int low = before_border ? 0 : border;
    const int high = before_border ? border : count;
    const float parts = static_cast<float>(before_border ? n : n - parts_before) + 0.5f;
    int i = low + static_cast<int>(parts * (before_border ? of_part_before : of_part_behind));
    i = min(i, high - 1);
    int behind = i + 1;
    if (firsts[i] > n) {
      behind = i;
      i = firsts[i - 1] <= n ? i - 1 : low;
    } else if (firsts[behind] <= n) {
      i = behind;
      behind = firsts[i + 1] > n ? i + 1 : high;
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

/// Large items, of more keys than a sixth of what an item may have, come before the others: the
/// last items of a launch, whose multiprocessors end apart, are to be short.
__device__ __forceinline__ bool are_large(int key_tiles, int items, int most_of_item) {
  return 6 * static_cast<std::int64_t>(key_tiles) > static_cast<std::int64_t>(most_of_item) * items;
}

/// The place of item `at`, part `part` of a tile, where items of large ones come first; `firsts`
/// counts those before a tile, `all` all of them.
template <class Firsts>
__device__ __forceinline__ int place_by_size(const Firsts& firsts, int tile, int part, int at,
                                             int all) {
  const int before = firsts[tile];
  return firsts[tile + 1] > before ? before + part : all + at - before;
}

/// The place of item `at` in the order of blocks: those of groups, the first `shared` of all, are
/// spread over the launch, since they multiply more than they read.
__device__ __forceinline__ int place_in_order(int at, int shared, int count) {
  const int others = count - shared;
  const auto part = [](int a, int b, int of, int more) {
    // Without a division of 64 bits where there are few.
    if (a < 1 << 15 && b < 1 << 15) return (a * b + more) / of;
    return static_cast<int>((static_cast<std::int64_t>(a) * b + more) / of);
  };
  if (at < shared) return at + part(at, others, shared, shared - 1);
  return at - shared + part(at - shared, shared, others, 0) + 1;
}

/// prim::divisor::of without a division of 64 bits, for which all threads would wait.
__device__ __forceinline__ prim::divisor divisor_of(int value) {
  const int shift = value > 1 ? 32 - __clz(value - 1) : 0;
  const std::int64_t excess = ((std::int64_t{1} << shift) - value) << 32;
  auto quotient =
      static_cast<std::int64_t>(static_cast<double>(excess) / static_cast<double>(value));
  if (quotient * value > excess) --quotient;  // what is next to a whole number was rounded to it
  return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(quotient + 1),
          static_cast<std::uint32_t>(shift)};
}

}  // namespace tessera::kernels::attention::sm80
