// The kernel that looks at mask tensors, segments and mask functors once for all heads that see the
// same, and leaves a word for each 32 tiles of keys (tile_classes.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/tile_scan.hpp>
#include <tessera/kernels/attention/sm90/segment_runs.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// Keys that a thread looks at: a mask's bytes of a row are one load.
inline constexpr int keys_of_chunk = 16;

/// The rows of a warpgroup against a chunk of keys.
template <class Traits>
class chunk_scan {
 public:
  __device__ __forceinline__ chunk_scan(const launch_args& args,
                                        const typename Traits::hooks& hooks, const work_tile& work,
                                        int warpgroup, int key0)
      : call_(args.call),
        hooks_(hooks),
        work_(work),
        key0_(key0),
        keys_(min(keys_of_chunk, work.k_len - key0)) {
    queries_ = queries_of(args, work, warpgroup * rows_of_warpgroup, rows_of_warpgroup);
    head_end_ = work.first_head + static_cast<int>(args.heads_of_tile.value);
  }

  /// By whole warps.
  __device__ __forceinline__ void run() {
    if constexpr (Traits::has(attention_feature::segments)) {
      if (call_.q_segments.data != nullptr) look_at_segments();
    }
    if (keys_ <= 0) {
      some = false;
      return;
    }
    if constexpr (Traits::has(attention_feature::mask)) {
      if (call_.mask.data != nullptr) look_at_mask();
    }
    if constexpr (prim::classifies_tiles<decltype(Traits::hooks::mask)>) ask_functor();
  }

  bool some = true, whole = true;

 private:
  __device__ __forceinline__ void look_at_segments() {
    const std::int32_t* own = call_.q_segments.data + work_.sequence * call_.q_segments.batch;
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    id_range of_queries;
    for (int q = queries_.first + lane; q <= queries_.last; q += prim::cuda::warp_size) {
      of_queries.add(own[q * call_.q_segments.row]);
    }
    of_queries.gather();
    const std::int32_t* ids = call_.kv_segments.data + work_.sequence * call_.kv_segments.batch;
    id_range of_keys;
    for (int i = 0; i < keys_; ++i) of_keys.add(ids[(key0_ + i) * call_.kv_segments.row]);
    const int id = of_queries.most;
    some = some && of_queries.meets(of_keys);
    whole = whole && of_queries.is_only(id) && (keys_ <= 0 || of_keys.is_only(id));
  }

  __device__ __forceinline__ void look_at_mask() {
    const score_tensor& mask = call_.mask;
    const auto* base = static_cast<const std::uint8_t*>(mask.data) + work_.sequence * mask.batch +
                       key0_ * mask.column;
    const bool in_chunks = keys_ == keys_of_chunk && mask.column == 1 && mask.row % 16 == 0 &&
                           mask.head % 16 == 0 && reinterpret_cast<std::uintptr_t>(base) % 16 == 0;
    const int head_end = mask.head == 0 ? work_.first_head + 1 : head_end_;
    const int query_end = mask.row == 0 ? queries_.first + 1 : queries_.last + 1;
    mask_scan scan;
#pragma unroll 1
    for (int head = work_.first_head; head < head_end; ++head) {
#pragma unroll 1
      for (int query = queries_.first; query < query_end;) {
        const auto* row = base + head * mask.head + query * mask.row;
        int rows = 1;
        if (in_chunks) {
          rows = min(mask_scan::rows_at_once, query_end - query);
          scan.add_chunks<keys_of_chunk>(row, mask.row, rows);
        } else {
          scan.add_bytes(row, mask.column, keys_);
        }
        if (scan.some && scan.hidden) break;
        query += rows;
      }
    }
    some = some && scan.some;
    whole = whole && !scan.hidden;
  }

  __device__ __forceinline__ void ask_functor() {
    const prim::tile_visibility seen = hooks_.mask.classify(
        prim::score_tile{work_.sequence, work_.first_head, head_end_, queries_.first,
                         queries_.last + 1, key0_, key0_ + keys_});
    some = some && seen != prim::tile_visibility::skip;
    whole = whole && seen == prim::tile_visibility::full;
  }

  const attention_kernel_args& call_;
  const typename Traits::hooks& hooks_;
  const work_tile& work_;
  const int key0_, keys_;
  query_span queries_;
  int head_end_;
};

template <class Traits>
inline constexpr int classify_threads = 32 * Traits::block_kv / keys_of_chunk;

/// A block has 32 tiles of keys of the rows of one work tile.
template <class Kernel, class Traits>
__global__ void __launch_bounds__(classify_threads<Traits>)
    classify_tiles(const __grid_constant__ launch_args args,
                   const __grid_constant__ typename Traits::hooks hooks) {
  __shared__ class_words words;
  constexpr int chunks = Traits::block_kv / keys_of_chunk;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 3) {
    words.some[thread] = 0;
    words.whole[thread] = 0xffffffffu;
  }
  __syncthreads();
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  if constexpr (finds_runs<Traits>) {
    if (is_for_other(args, false)) return;
  }
  const int row = static_cast<int>(blockIdx.x) / args.words_of_row;
  const int word = static_cast<int>(blockIdx.x) - row * args.words_of_row;
  const int head_block = row / args.class_blocks;
  const int block = row - head_block * args.class_blocks;
  const work_tile work =
      args.call.cu_seqlens_q != nullptr
          ? packed_work_tile(args, block * static_cast<int>(args.head_blocks.value) + head_block)
          : entry_work_tile(args, block / args.row_blocks, head_block, block % args.row_blocks);
  const int key0 = word * 32 * Traits::block_kv + thread * keys_of_chunk;
  const std::uint32_t bit = 1u << thread / chunks;
#pragma unroll 1
  for (int n = 0; n < Traits::consumers && n * rows_of_warpgroup < work.used; ++n) {
    chunk_scan<Traits> scan(args, hooks, work, n, key0);
    scan.run();
    if (scan.some) atomicOr(&words.some[n], bit);
    if (!scan.whole) atomicAnd(&words.whole[n], ~bit);
  }
  __syncthreads();
  if (thread == 0) {
    words.some_of_block = words.some[0] | words.some[1] | words.some[2];
    args.classes[blockIdx.x] = words;
  }
}

}  // namespace tessera::kernels::attention::sm90
