// Attention on latents in pages with wgmma: a block has 64 query rows, tokens times heads, and goes
// along its keys, or a split of them.
//
//   bring:  for each tile { wait until its place is empty; copy; tell }
//   score:  for each tile { Q K^T; logits; maxima; weights to shared memory; tell }
//   weigh:  for each tile { rescale; sums += P V, of half of the columns }
//
// Scores are computed once and weights go to all who weigh by way of shared memory, where a tile's
// latents serve as keys and as values.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_rows.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_scores.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// Whether blocks write outputs themselves: they have all keys of their rows, and every row of the
/// launch is some block's.
inline __host__ __device__ bool writes_outputs(const latent_attention_kernel_args& args,
                                               const sm80::split_results& results) {
  return results.splits == 1 && args.cu_seqlens_q == nullptr;
}

/// Weighted values: all rows of the block, and `value_columns` columns.
template <class Element>
class weigher {
 public:
  __device__ __forceinline__ weigher(absorbed_memory& memory, int part)
      : memory_(memory), part_(part) {}

  __device__ __forceinline__ void run(int tiles) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % stages;
      prim::cuda::wait_for_phase(prim::cuda::shared_address(&memory_.weighed[stage]),
                                 phase_of(tile));
      rescale(memory_.factors[stage]);
      multiply(prim::cuda::shared_address(memory_.keys[stage]));
      if (threadIdx.x % prim::cuda::warp_size == 0) {
        prim::cuda::arrive(prim::cuda::shared_address(&memory_.empty[stage]));
      }
    }
  }

  /// For both rows of this thread, `place(row)` and then body(what it gave, column, two
  /// neighbours).
  template <class Place, class Body>
  __device__ __forceinline__ void for_each_pair(const Place& place, const Body& body) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto of_row = place(row() + half * 8);
#pragma unroll
      for (int i = 0; i < value_columns / 8; ++i) {
        const auto& of = sums_[i / (product_columns / 8)];
        const int at = i % (product_columns / 8) * 4 + 2 * half;
        body(of_row, part_ * value_columns + i * 8 + static_cast<int>(threadIdx.x % 4 * 2), of[at],
             of[at + 1]);
      }
    }
  }

 private:
  /// Of one product: with all columns it would take more registers than a block of so many threads
  /// is launched with.
  static constexpr int product_columns = value_columns / 2;
  using product = prim::cuda::warpgroup_product<Element, product_columns>;

  static __device__ __forceinline__ int row() {
    return static_cast<int>(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
  }

  __device__ __forceinline__ void rescale(const float* factors) {
    const float factor[2] = {factors[row()], factors[row() + 8]};
    if (!prim::cuda::any_of_warp(factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (auto& of : sums_) {
#pragma unroll
      for (int i = 0; i < product_columns / 2; ++i) of[i] *= factor[i / 2 % 2];
    }
  }

  __device__ __forceinline__ void multiply(std::uint32_t tile) {
    const std::uint64_t a =
        prim::cuda::describe_panels(tile + latent_panels * panel_bytes, panel_bytes);
    const std::uint64_t b = prim::cuda::describe_panels(
        tile + static_cast<unsigned>(part_) * (latent_panels / value_warpgroups) * panel_bytes,
        panel_bytes);
    prim::cuda::begin_products();
#pragma unroll
    for (int k = 0; k < tile_keys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        product::template multiply<false, true>(
            sums_[i], a + prim::cuda::panel_step(k * 32),
            b + prim::cuda::panel_step(i * product_columns / prim::cuda::panel_columns *
                                           panel_bytes +
                                       k * 16 * prim::cuda::panel_row_bytes),
            true);
      }
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums_[0]);
    prim::cuda::keep_in_place(sums_[1]);
  }

  absorbed_memory& memory_;
  int part_;
  float sums_[2][product_columns / 2] = {};
};

/// Sums as floats in shared memory, in the place of tiles, so that rows are written side by side.
inline constexpr int float_row = value_columns + 8;
static_assert(value_warpgroups * block_rows * float_row * 4 <= stages * tile_bytes);

/// Outputs of a warpgroup's columns: sums times the scales of rows.
template <class Element>
__device__ __forceinline__ void write_outputs(const latent_attention_kernel_args& args,
                                              const sm80::row_block& rows,
                                              const weigher<Element>& sums, int part,
                                              absorbed_memory& memory) {
  auto* const floats = reinterpret_cast<float*>(memory.keys[0]) + part * block_rows * float_row;
  // Nobody multiplies tiles any more, and scales are there.
  prim::cuda::wait_for_threads(end_barrier, 3 * prim::cuda::warpgroup_size);
  sums.for_each_pair([&](int row) { return floats + row * float_row - part * value_columns; },
                     [](float* to, int column, float low, float high) {
                       *reinterpret_cast<float2*>(to + column) = make_float2(low, high);
                     });
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = static_cast<int>(threadIdx.x / 32 % 4 * 16);
  const std::int64_t columns = args.value - part * value_columns;
  // A lane finds the place of one row: quotients of 64 bits take long.
  const int own = first + lane % 16;
  const std::int64_t own_place = own < rows.count ? rows.at(args.out, own) : 0;
  prim::cuda::with_elements(args.out.data, args.out.type, [&](auto* elements) {
    using element = std::remove_pointer_t<decltype(elements)>;
#pragma unroll 1
    for (int r = first; r < first + 16 && r < rows.count; ++r) {
      auto* const to = elements + __shfl_sync(prim::cuda::all_lanes, own_place, r - first) +
                       part * value_columns;
      const float scale = memory.scales[r];
#pragma unroll
      for (int i = 0; i < value_columns / 32; ++i) {
        const int c = lane + i * 32;
        const float sum = floats[r * float_row + c];
        if (c < columns) to[c] = prim::nearest<element>(scale == 0.0f ? 0.0f : sum * scale);
      }
    }
  });
}

/// Sums of a split, for `combine_splits`.
template <class Element>
__device__ __forceinline__ void write_sums(const latent_attention_kernel_args& args,
                                           const sm80::row_block& rows,
                                           const sm80::split_results& results, std::int64_t split,
                                           const weigher<Element>& sums) {
  sums.for_each_pair(
      [&](int row) -> float* {
        if (row >= rows.count) return nullptr;
        return results.sums + (split * results.rows + rows.number(args, row)) * args.value;
      },
      [&](float* to, int column, float low, float high) {
        if (to == nullptr || column >= args.value) return;
        *reinterpret_cast<float2*>(to + column) = make_float2(low, high);
      });
}

/// What becomes of a row: its lse, and what its sums are scaled by.
__device__ __forceinline__ float finish_row(const latent_attention_kernel_args& args,
                                            const sm80::row_block& rows, int r,
                                            const prim::softmax_state& state) {
  const std::int64_t head = rows.head(r);
  const prim::softmax_result result =
      prim::finish_row(state, args.sinks + head * args.sink_head_stride,
                       static_cast<int>(args.sink_count), args.sink_stride, true);
  if (args.lse.data != nullptr) {
    args.lse.data[rows.seq.index * args.lse.batch + head * args.lse.head +
                  rows.token(r) * args.lse.row] = result.lse;
  }
  return result.scale * args.out_factor;
}

template <class Element>
__global__ void __launch_bounds__(absorbed_threads, 1)
    attend_absorbed(const __grid_constant__ latent_attention_kernel_args args,
                    const std::int64_t* starts, const sm80::split_results results) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<absorbed_memory*>(bytes);
  const sm80::row_block rows =
      sm80::row_block_of(args, starts, blockIdx.x / results.splits, block_rows);
  if (rows.count == 0) return;
  const std::int64_t split = blockIdx.x % results.splits;
  const auto keys = sm80::keys_of_split(args, rows, results, split);
  const auto first = static_cast<int>(keys.begin), end = static_cast<int>(keys.end);
  const int tiles = end > first ? (end - first + tile_keys - 1) / tile_keys : 0;
  const bool outputs = writes_outputs(args, results);
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    memory.init_barriers();
    prim::cuda::publish_barriers();
    prim::cuda::show_writes_to_async_units();
  }
  __syncthreads();

  if (warpgroup == static_cast<int>(role::bring)) {
    prim::cuda::give_registers<bring_registers>();
    tile_bringer(args, rows.seq.index, end, memory).run(first, tiles);
  } else if (warpgroup == static_cast<int>(role::score)) {
    prim::cuda::give_registers<score_registers>();
    bring_queries(args, rows, prim::cuda::shared_address(memory.queries));
    prim::cuda::wait_for_threads(score_barrier, prim::cuda::warpgroup_size);
    scorer<Element> scores(args, rows, memory);
    scores.run(first, tiles);
    scores.finish([&](int r, const prim::softmax_state& state) {
      if (outputs) {
        memory.scales[r] = finish_row(args, rows, r, state);
      } else {
        results.states[split * results.rows + rows.number(args, r)] = state;
      }
    });
    if (outputs) prim::cuda::wait_for_threads(end_barrier, 3 * prim::cuda::warpgroup_size);
  } else {
    prim::cuda::take_registers<weigh_registers>();
    const int part = warpgroup - static_cast<int>(role::weigh);
    weigher<Element> sums(memory, part);
    sums.run(tiles);
    if (outputs) {
      write_outputs(args, rows, sums, part, memory);
    } else {
      write_sums(args, rows, results, split, sums);
    }
  }
}

}  // namespace tessera::kernels::latent_attention::sm90
