// Forward flash attention with mma.sync: a block of query rows against tiles of keys, two tiles of
// keys and values in shared memory, one being worked on while the next arrives.
//
// T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
// arXiv:2307.08691, for the split of rows over warps; the conditional rescaling is that of
// FlashAttention-4. Measurements behind the choices: README.md of this folder.
#pragma once

#include <cstdint>

#include <tessera/kernels/flash_attention/sm80_block.hpp>
#include <tessera/kernels/flash_attention/sm80_finish.hpp>
#include <tessera/kernels/flash_attention/sm80_tiles.hpp>
#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/kernels/flash_attention/sm80_warp.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

/// The work of one thread block.
template <class Row, int Width, class Tokens, class Hooks>
class forward_block {
  using traits = kernel_traits<Row, Width, Tokens>;
  using modifiers = score_modifiers<traits, Hooks>;
  using words = typename traits::words;
  using k_loader = tile_loader<traits, typename traits::k_tile>;
  using v_loader = tile_loader<traits, typename traits::v_tile>;
  using warp = warp_rows<Row, Width, Tokens, Hooks>;
  static constexpr int row_tiles = traits::row_tiles;

 public:
  using state = typename warp::state;

  /// `known` and `tiles` (traits::shared_bytes, a multiple of 1024) lie in shared memory.
  __device__ __forceinline__ forward_block(const launch_args& args, const Hooks& hooks,
                                           state& known, std::uint32_t tiles)
      : args_(args), known_(known), q_tile_(tiles), warp_(args, hooks, known, tiles) {}

  __device__ __forceinline__ void run(int item, int split) {
    {
      const row_range range = rows_of_block<traits>(args_, item);
      const auto visible = prim::row_visibility<traits::config.mask>::of(args_.call, range.seq);
      if (threadIdx.x == 0) {
        known_.range = range;
        known_.visible = visible;
        known_.keys = keys_of_block<traits>(args_, range, visible, split);
        known_.k = token_row<const std::uint16_t>(args_.call.k, args_.call.k_strides, range.seq,
                                                  range.seq.k_begin, range.kv_head);
        known_.v = token_row<const std::uint16_t>(args_.call.v, args_.call.v_strides, range.seq,
                                                  range.seq.k_begin, range.kv_head);
        known_.careful = false;
        known_.negate = args_.negative_scale;
      }
      if (range.visible > 0) copy_queries<traits>(args_, range, q_tile_);
    }
    __syncthreads();
    if (known_.range.rows <= 0) return;
    if (split == 0 && known_.range.visible < known_.range.rows) {
      write_empty_rows<traits>(args_, known_.range, known_.range.visible);
    }
    if (known_.range.visible == 0) return;
    warp_.clear();
    if (known_.keys.first_tile < known_.keys.last_tile) {
      // 0 times a value that is infinite or NaN reaches the sums of rows that must not see it; the
      // second time every value that some row must not see is looked at first.
      for (;;) {
        all_tiles();
        const bool last = known_.careful;
        if (__syncthreads_or(warp_.has_not_finite()) == 0 || last) break;
        warp_.clear();
        if (threadIdx.x == 0) known_.careful = true;
        __syncthreads();
      }
    }
    if (args_.splits > 1) {
      write_split(split);
    } else {
      write_rows();
    }
  }

 private:
  __device__ __forceinline__ std::uint32_t k_tile(int stage) const {
    return q_tile_ + traits::q_bytes + stage * traits::k_tile::bytes;
  }
  __device__ __forceinline__ std::uint32_t v_tile(int stage) const {
    return q_tile_ + traits::q_bytes + traits::stages * traits::k_tile::bytes +
           stage * traits::v_tile::bytes;
  }
  static __device__ __forceinline__ int next_stage(int stage) { return stage ^ 1; }

  __device__ __forceinline__ void copy_keys(int tile, int stage) {
    k_loader::copy(k_tile(stage), known_.k, args_.call.k_strides.row, tile * traits::block_kv,
                   known_.keys.end, args_.call.head_dim, tile < known_.keys.last_tile);
  }
  __device__ __forceinline__ void copy_values(int tile, int stage) {
    v_loader::copy(v_tile(stage), known_.v, args_.call.v_strides.row, tile * traits::block_kv,
                   known_.keys.end, args_.call.v_head_dim, tile < known_.keys.last_tile);
  }

  /// The first tile from `tile` on that segments do not hide from every row of the block.
  __device__ __forceinline__ int next_tile(int tile) {
    if constexpr (modifiers::segments) {
      const flash_kernel_args& call = args_.call;
      if (call.q_segments.data == nullptr) return tile;
      for (; tile < known_.keys.last_tile; ++tile) {
        const std::int32_t* ids =
            call.kv_segments.data + known_.range.seq.index * call.kv_segments.batch;
        int least = INT32_MAX;
        int most = -1;
        for (int j = tile * traits::block_kv + warp::lane();
             j < min(known_.keys.end, (tile + 1) * traits::block_kv); j += 32) {
          const std::int32_t id = ids[j * call.kv_segments.row];
          if (id >= 0) least = min(least, id);
          most = max(most, id);
        }
        least = prim::cuda::minimum_of_warp(least);
        most = prim::cuda::maximum_of_warp(most);
        if (least <= most_id_ && least_id_ <= most) return tile;
      }
    }
    return tile;
  }

  /// Smallest and largest segment of the block's rows.
  __device__ __forceinline__ void find_ids() {
    if constexpr (modifiers::segments) {
      const flash_kernel_args& call = args_.call;
      least_id_ = INT32_MAX;
      most_id_ = -1;
      if (call.q_segments.data == nullptr) return;
      const std::int32_t* ids =
          call.q_segments.data + known_.range.seq.index * call.q_segments.batch;
      const int first = query_of(args_, known_.range.kv_head, known_.range.first_row).query;
      const int last =
          query_of(args_, known_.range.kv_head, known_.range.first_row + known_.range.visible - 1)
              .query;
      for (int i = first + warp::lane(); i <= last; i += 32) {
        const std::int32_t id = ids[i * call.q_segments.row];
        if (id >= 0) least_id_ = min(least_id_, id);
        most_id_ = max(most_id_, id);
      }
      least_id_ = prim::cuda::minimum_of_warp(least_id_);
      most_id_ = prim::cuda::maximum_of_warp(most_id_);
    }
  }

  __device__ __forceinline__ void all_tiles() {
    find_ids();
    int tile = next_tile(known_.keys.first_tile);
    if (tile >= known_.keys.last_tile) return;
    copy_keys(tile, 0);
    copy_values(tile, 0);
    prim::cuda::commit_copies();
    if (known_.negate || traits::shape.threads.q_in_registers) {
      prim::cuda::wait_copies<0>();
      __syncthreads();
      if (known_.negate) {
        negate_queries();
        __syncthreads();
        if (threadIdx.x == 0) known_.negate = false;
      }
      warp_.load_queries();
    }
    for (int stage = 0; tile < known_.keys.last_tile; stage = next_stage(stage)) {
      prim::cuda::wait_copies<0>();
      __syncthreads();  // this tile has arrived, and everyone is done with the one before
      const int next = next_tile(tile + 1);
      copy_values(next, next_stage(stage));
      warp_.multiply_queries(k_tile(stage));
      copy_keys(next, next_stage(stage));
      prim::cuda::commit_copies();
      one_tile(tile, stage);
      tile = next;
    }
  }

  /// Products are in `scores_`, values in shared memory.
  __device__ __forceinline__ void one_tile(int tile, int stage) {
    const int key0 = tile * traits::block_kv;
    const bool whole = known_.keys.full_begin <= key0 &&
                       known_.keys.full_end >= key0 + traits::block_kv &&
                       !modifiers::everywhere(args_.call);
    bool not_finite = false;
    const std::uint32_t values = v_tile(stage);
    if (!whole) {
      warp_.modify_scores(key0);
      if (known_.keys.end < key0 + traits::block_kv && traits::aligned && traits::whole_chunks) {
        v_loader::clear_from(values, known_.keys.end - key0);
        __syncthreads();
      }
      if (known_.careful) {
        not_finite = __syncthreads_or(v_loader::has_not_finite(values)) != 0;
        if (not_finite) {
          v_loader::keep_finite(values);
          __syncthreads();
        }
      }
    }
    warp_.update_maxima();
    if (not_finite) warp_.add_not_finite(key0);
    warp_.multiply_values(key0, values);
  }

  __device__ __forceinline__ void negate_queries() {
    for (std::uint32_t at = threadIdx.x * 16; at < traits::q_tile::bytes;
         at += traits::threads * 16) {
      std::uint32_t four[4];
      prim::cuda::load_shared_16(four, q_tile_ + at);
      for (std::uint32_t& word : four) word ^= 0x80008000u;
      prim::cuda::store_shared_16(q_tile_ + at, four);
    }
  }

  __device__ __forceinline__ void write_rows() {
    prim::cuda::commit_copies();  // Q is still under way if there was no tile to look at,
    prim::cuda::wait_copies<0>();
    __syncthreads();  // and it is not needed any more
    const int quarter = warp::lane() % 4;
    prim::softmax_state mine;
    // The four lanes of a quad know the same rows: each finishes one of them.
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = warp_.state_of(m, half);
        const bool own = quarter % (2 * row_tiles) == 2 * m + half;
        mine.maximum = own ? state.maximum : mine.maximum;
        mine.denominator = own ? state.denominator : mine.denominator;
      }
    }
    const int own_row = warp::row_in_block(static_cast<int>(threadIdx.x),
                                           quarter % (2 * row_tiles) / 2, quarter % 2);
    float own_scale = 0.0f;
    if (own_row < known_.range.visible) {
      const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + own_row);
      const prim::softmax_result result = finished_sums(args_, row.head, mine);
      own_scale = result.scale;
      if (quarter < 2 * row_tiles) report(args_.call, known_.range.seq, row, result);
    }
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale =
            __shfl_sync(prim::cuda::all_lanes, own_scale, (warp::lane() & ~3) | (2 * m + half));
        const int r = warp::row_in_block(static_cast<int>(threadIdx.x), m, half);
        const std::uint32_t to = q_tile_ + traits::out_tile::offset(static_cast<unsigned>(r), 0) +
                                 static_cast<std::uint32_t>(quarter * 4);
#pragma unroll
        for (int d = 0; d < traits::v_tiles; ++d) {
          prim::cuda::store_shared_4((to ^ static_cast<std::uint32_t>(d % 8 * 16)) +
                                         static_cast<std::uint32_t>(d / 8 * 128),
                                     words::pack(warp_.sums(m, d).at[2 * half] * scale,
                                                 warp_.sums(m, d).at[2 * half + 1] * scale));
        }
      }
    }
    __syncwarp();
    constexpr int lanes = traits::out_tile::chunks >= 16 ? 16 : 8;
    const auto lane = static_cast<unsigned>(warp::lane());
    const int first = warp::first_of_warp() + static_cast<int>(lane / lanes);
    if (args_.group.value == 1 && args_.aligned_out && traits::whole_chunks) {
      auto* out = token_row<std::uint16_t>(
          args_.call.out, args_.call.out_strides, known_.range.seq,
          known_.range.seq.q_begin + known_.range.first_row + first, known_.range.kv_head);
      const int left = known_.range.visible - first;
#pragma unroll 4
      for (int r = 0; r < traits::rows_of_warp; r += 32 / lanes) {
#pragma unroll
        for (unsigned at = 0; at < traits::out_tile::chunks; at += lanes) {
          std::uint32_t four[4];
          prim::cuda::load_shared_16(
              four, q_tile_ + traits::out_tile::offset(static_cast<unsigned>(first + r),
                                                       at + lane % lanes));
          if (r < left && at + lane % lanes < traits::out_tile::chunks) {
            *reinterpret_cast<uint4*>(out + (at + lane % lanes) * 8) =
                make_uint4(four[0], four[1], four[2], four[3]);
          }
        }
        out += 32 / lanes * args_.call.out_strides.row;
      }
      return;
    }
#pragma unroll 1
    for (int r = first; r < warp::first_of_warp() + traits::rows_of_warp; r += 32 / lanes) {
      if (r >= known_.range.visible) break;
      const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + r);
      write_row<typename traits::out_tile>(
          q_tile_, r,
          token_row<std::uint16_t>(args_.call.out, args_.call.out_strides, known_.range.seq,
                                   known_.range.seq.q_begin + row.query, row.head),
          args_.call.v_head_dim, args_.aligned_out, static_cast<int>(lane % lanes), lanes);
    }
  }

  __device__ __forceinline__ void write_split(int split) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const prim::softmax_state state = warp_.state_of(m, half);
        const int r = warp::row_in_block(static_cast<int>(threadIdx.x), m, half);
        if (r >= known_.range.visible) continue;
        const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + r);
        const std::int64_t at = flat_row(args_.call, known_.range.seq, row) * args_.splits + split;
        if (warp::lane() % 4 == 0) {
          args_.states[2 * at] = state.maximum;
          args_.states[2 * at + 1] = state.denominator;
        }
        float* sums = args_.sums + at * args_.v_stride + warp::lane() % 4 * 2;
#pragma unroll
        for (int d = 0; d < traits::v_tiles; ++d) {
          if (d * 8 < args_.v_stride) {
            *reinterpret_cast<float2*>(sums + d * 8) =
                make_float2(warp_.sums(m, d).at[2 * half], warp_.sums(m, d).at[2 * half + 1]);
          }
        }
      }
    }
  }

  const launch_args& args_;
  state& known_;
  std::uint32_t q_tile_;
  warp warp_;
  int least_id_ = 0, most_id_ = 0;
};

/// One block of query rows and one split of its keys per thread block.
template <class Row, int Width, class Tokens, class Hooks>
__global__ void __launch_bounds__(Row::tiling.warps * 32, Row::tiling.blocks_per_sm)
    forward_kernel(const __grid_constant__ launch_args args, const __grid_constant__ Hooks hooks) {
  extern __shared__ __align__(1024) unsigned char shared[];
  using block = forward_block<Row, Width, Tokens, Hooks>;
  __shared__ typename block::state known;
  block(args, hooks, known, prim::cuda::shared_address(shared))
      .run(static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
}

}  // namespace tessera::flash::sm80
