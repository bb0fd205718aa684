// Gradients of rows that a block keeps on its multiprocessor, in shared memory and a few registers:
// a row is read once. Blocks of a cluster share one that is too long for a block (compute
// capability 9.0); what is longer still is read again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/row_chunks.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::losses::sm80 {

/// Sums of powers that are counted from the origin of a largest logit. Where all are -inf so far,
/// as behind the end of a row, there is none: 0 would be above that of logits which are all far
/// below.
struct origin_sums {
  float largest = minus_infinity;
  float powers = 0;

  /// The same from that of a largest logit that is not below.
  __device__ __forceinline__ float from(float other) const {
    return powers == 0 ? 0 : powers * power_origin(other).factor_of(power_origin(largest));
  }
  template <class Element, int Chunks>
  __device__ __forceinline__ void add(const row_chunk<Element> (&x)[Chunks]) {
    const float most = fmaxf(largest_of(x), largest);
    if (most > largest) {
      powers = from(most);
      largest = most;
    }
    powers += powers_of(x, power_origin(most));
  }
};
/// Of lanes, merged in one order; all get them.
__device__ __forceinline__ origin_sums merge_lanes(const origin_sums& own) {
  float most = own.largest;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    most = fmaxf(most, __shfl_xor_sync(prim::cuda::all_lanes, most, step));
  }
  return {most, prim::cuda::sum_of_warp(own.from(most))};
}

/// What becomes of the logits of a row: origin.power(x) scale - elsewhere, and on the target
/// `at_target` less.
struct kept_gradient {
  power_origin origin;
  float scale = 0, elsewhere = 0, at_target = 0;
};

/// What threads of a block tell each other.
struct kept_words {
  float2 of_warps[32];
  float2 of_block;
  float factor;
  kept_gradient of_row;
};

/// The block among those of its row.
__device__ __forceinline__ int block_of_row() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return static_cast<int>(prim::cuda::block_in_cluster());
#else
  return 0;
#endif
}

/// Sums of all blocks of a cluster, for the first warp of each; `own` is the block's. All threads
/// of all blocks call it.
__device__ __forceinline__ origin_sums sums_of_blocks(const origin_sums& own, kept_words& words) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const std::uint32_t blocks = prim::cuda::blocks_of_cluster();
  if (blocks == 1) return own;
  if (threadIdx.x == 0) words.of_block = make_float2(own.largest, own.powers);
  prim::cuda::wait_for_cluster();
  origin_sums all;
  if (threadIdx.x < 32) {
    origin_sums of_block;
    if (threadIdx.x < blocks) {
      const float2 pair =
          prim::cuda::load_of_block(prim::cuda::shared_address(&words.of_block), threadIdx.x);
      of_block = {pair.x, pair.y};
    }
    all = merge_lanes(of_block);
  }
  // Behind the reads: blocks end when all have arrived.
  prim::cuda::arrive_at_cluster();
  return all;
#else
  return own;
#endif
}
/// Before a block ends, others have read its sums.
__device__ __forceinline__ void end_with_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (prim::cuda::blocks_of_cluster() > 1) prim::cuda::wait_for_arrivals();
#endif
}

/// How rows are kept.
struct kept_grid {
  int blocks = 1;   ///< of a row
  int threads = 0;  ///< of a block
  int rounds = 0;   ///< chunks of a thread
  int kept = 0;     ///< of these in shared memory, behind those in registers
  int shared_bytes = 0;
};
inline constexpr int held_chunks = 2;  ///< of a thread in registers
inline constexpr int most_kept = 14;   ///< in shared memory: 1024 threads have 224 KiB so

/// Gradients of a row's chunks by the thread that has them: round i is chunk `own + i threads`.
template <class Element>
struct kept_chunks {
  using chunk = row_chunk<Element>;

  const chunked_row<Element>& row;
  const kept_grid& grid;
  uint4* shared;
  int own, end;  ///< the thread's first chunk, the first one of another block
  chunk held[held_chunks];

  __device__ __forceinline__ int at(int round) const {
    return own + round * static_cast<int>(blockDim.x);
  }
  __device__ __forceinline__ uint4& place(int round) const {
    return shared[(round - held_chunks) * static_cast<int>(blockDim.x) +
                  static_cast<int>(threadIdx.x)];
  }

  /// Sums of all chunks. What is kept is all on its way at once; the rest, where there is any,
  /// comes behind it.
  __device__ __forceinline__ origin_sums read() {
    constexpr int groups = most_kept / group;
#pragma unroll
    for (int i = 0; i < held_chunks; ++i) held[i] = row.load(at(i));
#pragma unroll
    for (int i = 0; i < most_kept; ++i) {
      if (i < grid.kept) fetch(held_chunks + i);
      if (i % group == group - 1) prim::cuda::commit_copies();
    }
    origin_sums sums;
    sums.add(held);
    add_kept<groups>(sums);
    for (int round = held_chunks + grid.kept; round < grid.rounds; ++round) {
      const chunk x[1] = {row.load(at(round), false)};
      sums.add(x);
    }
    for_each_edge([&](int edge) {
      const chunk of_edge[1] = {row.load_edge(edge)};
      sums.add(of_edge);
    });
    return sums;
  }

  /// Gradients of all chunks, whose target is at `target` counted from chunk 0 on; negative: none.
  __device__ __forceinline__ void write(const chunked_row<Element>& to,
                                        const kept_gradient& gradient, int target) {
    const auto put = [&](int round, const chunk& x) {
      if (to.is_whole(at(round)))
        to.store(at(round), changed(x, gradient, target - at(round) * chunk::size));
    };
#pragma unroll
    for (int i = 0; i < held_chunks; ++i) put(i, held[i]);
    const int kept = min(grid.rounds, held_chunks + grid.kept);
#pragma unroll 2
    for (int round = held_chunks; round < kept; ++round) put(round, chunk::of(place(round)));
    for (int round = kept; round < grid.rounds; ++round) put(round, row.load(at(round), true));
    for_each_edge([&](int edge) {
      to.store_edge(edge, changed(row.load_edge(edge), gradient, target - edge * chunk::size));
    });
  }
  __device__ __forceinline__ void clear(const chunked_row<Element>& to) const {
    for (int round = 0; round < grid.rounds; ++round) to.store(at(round), chunk::filled(0));
    for_each_edge([&](int edge) { to.store_edge(edge, chunk::filled(0)); });
  }

 private:
  static constexpr int group = 2;  ///< rounds that are waited for together

  /// Begins to bring a chunk; -inf where it is not whole.
  __device__ __forceinline__ void fetch(int round) const {
    uint4& to = place(round);
    if (row.is_whole(at(round))) {
      prim::cuda::copy_async_16(prim::cuda::shared_address(&to),
                                reinterpret_cast<const uint4*>(row.begin) + at(round));
    } else {
      to = chunk::filled(minus_infinity).words();
    }
  }
  /// Adds the last `Left` groups of what is kept, as they come.
  template <int Left>
  __device__ __forceinline__ void add_kept(origin_sums& sums) const {
    if constexpr (Left > 0) {
      const int first = most_kept - Left * group;
      if (first >= grid.kept) return;
      prim::cuda::wait_copies<Left - 1>();
      chunk x[group];
#pragma unroll
      for (int i = 0; i < group; ++i) x[i] = chunk::of(place(held_chunks + first + i));
      sums.add(x);
      add_kept<Left - 1>(sums);
    }
  }

  static __device__ __forceinline__ chunk changed(const chunk& x, const kept_gradient& gradient,
                                                  int target) {
    const power_origin& origin = gradient.origin;
    if (origin.is_near()) {
      return changed_by(x, gradient, target, [&](float each) { return origin.near_power(each); });
    }
    return changed_by(x, gradient, target, [&](float each) { return origin.power(each); });
  }
  template <class Power>
  static __device__ __forceinline__ chunk changed_by(const chunk& x, const kept_gradient& gradient,
                                                     int target, const Power& power) {
    const auto of = [&](int i) {
      return fmaf(power(x.at(i)), gradient.scale, -gradient.elsewhere);
    };
    chunk d_x;
#pragma unroll
    for (int i = 0; i < chunk::size; i += 2) d_x.put(i, of(i), of(i + 1));
    if (static_cast<unsigned>(target) >= static_cast<unsigned>(chunk::size)) return d_x;
    const auto with_target = [&](int i) {
      return i == target ? of(i) - gradient.at_target : of(i);
    };
#pragma unroll
    for (int i = 0; i < chunk::size; i += 2) d_x.put(i, with_target(i), with_target(i + 1));
    return d_x;
  }
  /// Those of the thread.
  template <class Visit>
  __device__ __forceinline__ void for_each_edge(const Visit& visit) const {
    row.for_each_edge([&](int edge) {
      const bool has =
          edge >= own && edge < end && (edge - own) % static_cast<int>(blockDim.x) == 0;
      if (has) visit(edge);
    });
  }
};

/// Rows without shares, whose gradients lie as they do.
template <class Element>
__global__ void __launch_bounds__(1024, 1)
    kept_gradients(const cross_entropy_kernel_args args, const entropy_terms terms,
                   const kept_grid grid, const double* weight_sum) {
  extern __shared__ uint4 kept_memory[];
  __shared__ kept_words words;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(grid.blocks);
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  const row_units units(args.logits, at, args.tokens.classes);
  const chunked_row<Element> from(units, {args.logits, at, units});
  const chunked_row<Element> to(units, {args.d_logits, at, units});
  const int threads = static_cast<int>(blockDim.x), begin = block_of_row() * grid.rounds * threads;
  kept_chunks<Element> own{from, grid, kept_memory, begin + static_cast<int>(threadIdx.x),
                           begin + grid.rounds * threads};
  if (weight == 0) return own.clear(to);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t target = target_of(args.tokens, at);
  if (threadIdx.x == 32) {
    const double factor = gradient_factor(args.tokens, at, weight, weight_sum);
    words.factor = static_cast<float>(factor);
    words.of_row.elsewhere = static_cast<float>(factor * terms.elsewhere);
    words.of_row.at_target = static_cast<float>(factor * (terms.on_target - terms.elsewhere));
  }
  origin_sums sums = merge_lanes(own.read());
  if (lane == 0) words.of_warps[warp] = make_float2(sums.largest, sums.powers);
  __syncthreads();
  if (warp == 0) {
    sums = {};
    if (lane < threads / 32) sums = {words.of_warps[lane].x, words.of_warps[lane].y};
    sums = merge_lanes(sums);
  }
  sums = sums_of_blocks(sums, words);
  if (threadIdx.x == 0) {
    const power_origin origin(sums.largest);
    words.of_row.origin = origin;
    words.of_row.scale = words.factor / sums.powers;
    if (terms.z_loss != 0) {
      const double lse = static_cast<double>(origin.shift) +
                         static_cast<double>(origin.log2) / static_cast<double>(prim::log2_e) +
                         log(static_cast<double>(sums.powers));
      words.of_row.scale *= static_cast<float>(1 + 2 * terms.z_loss * lse);
    }
  }
  __syncthreads();
  own.write(to, words.of_row, target < 0 ? -1 : static_cast<int>(target) + units.lead);
  end_with_cluster();
}

/// Whether each row of a tensor begins at a multiple of 16 bytes.
inline bool begins_whole(const token_rows& rows) {
  const auto size = static_cast<std::int64_t>(size_of(rows.type));
  const auto bits =
      reinterpret_cast<std::uintptr_t>(rows.data) |
      static_cast<std::uintptr_t>((rows.nest | rows.group | rows.entry | rows.token) * size);
  return bits % 16 == 0;
}
/// Whether the rows of two tensors begin at the same places of 16 bytes.
inline bool lie_alike(const token_rows& some, const token_rows& others) {
  const auto size = static_cast<std::int64_t>(size_of(some.type));
  const auto differ = [&](std::int64_t x, std::int64_t y) { return (x - y) * size % 16 != 0; };
  const auto bits =
      reinterpret_cast<std::uintptr_t>(some.data) ^ reinterpret_cast<std::uintptr_t>(others.data);
  return some.type == others.type && bits % 16 == 0 && !differ(some.nest, others.nest) &&
         !differ(some.group, others.group) && !differ(some.entry, others.entry) &&
         !differ(some.token, others.token);
}

/// The grid for rows of logits, on multiprocessors with so much shared memory for a block.
inline kept_grid kept_grid_of(const token_rows& logits, std::int64_t classes, int most_shared,
                              bool has_clusters) {
  constexpr std::int64_t most_blocks = 8;
  const std::int64_t bytes =
      classes * static_cast<std::int64_t>(size_of(logits.type)) + (begins_whole(logits) ? 0 : 15);
  const std::int64_t chunks = std::max<std::int64_t>((bytes + 15) / 16, 1);
  const auto of_blocks = [&](std::int64_t blocks, int threads, std::int64_t shared) {
    const std::int64_t rounds = (chunks + blocks * threads - 1) / (blocks * threads);
    kept_grid grid{
        .blocks = static_cast<int>(blocks),
        .threads = threads,
        .rounds = static_cast<int>((rounds + held_chunks - 1) / held_chunks) * held_chunks};
    const std::int64_t room = std::min<std::int64_t>(shared / (16 * threads) / 2 * 2, most_kept);
    grid.kept = static_cast<int>(std::min<std::int64_t>(grid.rounds - held_chunks, room));
    grid.shared_bytes = grid.kept * threads * 16;
    return grid;
  };
  const auto keeps_all = [](const kept_grid& grid) {
    return grid.kept + held_chunks >= grid.rounds;
  };
  // Blocks beside each other where rows are short: one reads while another writes.
  const std::int64_t all = most_shared;
  for (const int threads : {256, 512}) {
    const kept_grid grid = of_blocks(1, threads, all * threads / 1024 - 1024);
    if (keeps_all(grid)) return grid;
  }
  for (std::int64_t blocks = 1; blocks <= (has_clusters ? most_blocks : 1); blocks *= 2) {
    const kept_grid grid = of_blocks(blocks, 1024, all);
    if (keeps_all(grid)) return grid;
  }
  return of_blocks(1, 1024, all);
}

}  // namespace tessera::kernels::losses::sm80
