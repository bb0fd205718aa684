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
#include <tessera/kernels/flash_attention/sm80_visible.hpp>
#include <tessera/kernels/flash_attention/sm80_warp.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

/// The work of one thread block.
template <class Row, int Width, class Tokens, class Hooks>
class forward_block {
  using traits = kernel_traits<Row, Width, Tokens>;
  using modifiers = score_modifiers<traits, Hooks>;
  using q_loader = tile_loader<traits, typename traits::q_tile>;
  using k_loader = tile_loader<traits, typename traits::k_tile>;
  using v_loader = tile_loader<traits, typename traits::v_tile>;
  using warp = warp_rows<Row, Width, Tokens, Hooks>;
  static constexpr int row_tiles = traits::row_tiles;
  /// The first products begin before the first values have arrived. Rows that read Q from shared
  /// memory have no registers left for it.
  static constexpr bool early = traits::shape.threads.q_in_registers;

 public:
  using state = typename warp::state;

  /// `known` and `tiles` (traits::shared_bytes, a multiple of 1024) lie in shared memory.
  __device__ __forceinline__ forward_block(const launch_args& args, const Hooks& hooks,
                                           state& known, std::uint32_t tiles)
      : args_(args),
        known_(known),
        q_tile_(tiles),
        warp_(args, hooks, known, tiles),
        chooser_(args, hooks, known.range, known.keys, known.window) {}

  __device__ __forceinline__ void run(int item, int split) {
    {
      const row_range range = rows_of_block<traits>(args_, item);
      const auto visible = prim::row_visibility<traits::config.mask>::of(args_.call, range.seq);
      if (threadIdx.x == 0) {
        known_.range = range;
        known_.visible = visible;
        known_.keys = keys_of_block<traits>(args_, range, visible, split);
        known_.k = token_units<traits>(args_.call.k, args_.call.k_strides, range.seq,
                                       range.seq.k_begin, range.kv_head);
        known_.v = token_units<traits>(args_.call.v, args_.call.v_strides, range.seq,
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

  /// Where a tile's keys or values come from. Read from shared memory some time before it is
  /// needed.
  struct tile_source {
    const std::uint16_t* base;  ///< key 0
    int first;
    int limit;  ///< no later than `first` if there is no such tile
  };
  __device__ __forceinline__ tile_source source_of(const std::uint16_t* base, int tile) const {
    const int limit = tile < known_.keys.last_tile ? known_.keys.end : 0;
    return {base, tile * traits::block_kv, limit};
  }
  __device__ __forceinline__ tile_source keys_of(int tile) const {
    return source_of(known_.k, tile);
  }
  __device__ __forceinline__ tile_source values_of(int tile) const {
    return source_of(known_.v, tile);
  }
  __device__ __forceinline__ void copy_keys(const tile_source& from, int stage) {
    k_loader::copy(k_tile(stage), from.base, traits::units * args_.call.k_strides.row, from.first,
                   from.limit, traits::qk_units(args_.call), from.first < from.limit);
  }
  __device__ __forceinline__ void copy_values(const tile_source& from, int stage) {
    v_loader::copy(v_tile(stage), from.base, traits::units * args_.call.v_strides.row, from.first,
                   from.limit, traits::v_units(args_.call), from.first < from.limit);
  }

  __device__ __forceinline__ void all_tiles() {
    chooser_.begin();
    chosen_tile now = chooser_.next(known_.keys.first_tile);
    if (now.tile >= known_.keys.last_tile) return;
    clear_columns();
    if constexpr (traits::stages == 1) {
      tiles_in_one_stage(now);
    } else {
      tiles_in_two_stages(now);
    }
  }

  /// Zeros where tiles are wider than tokens: nothing else is written there.
  __device__ __forceinline__ void clear_columns() {
    q_loader::clear_columns(q_tile_, traits::qk_units(args_.call));
#pragma unroll
    for (int stage = 0; stage < traits::stages; ++stage) {
      k_loader::clear_columns(k_tile(stage), traits::qk_units(args_.call));
      v_loader::clear_columns(v_tile(stage), traits::v_units(args_.call));
    }
  }

  __device__ __forceinline__ void take_queries() {
    if (known_.negate) {
      negate_queries();
      __syncthreads();
      if (threadIdx.x == 0) known_.negate = false;
    }
    warp_.load_queries();
  }

  /// Keys arrive while values are worked on, and the other way round.
  __device__ __forceinline__ void tiles_in_one_stage(chosen_tile now) {
    copy_keys(keys_of(now.tile), 0);
    prim::cuda::commit_copies();
    prim::cuda::wait_copies<0>();
    __syncthreads();
    take_queries();
    while (now.tile < known_.keys.last_tile) {
      copy_values(values_of(now.tile), 0);
      prim::cuda::commit_copies();
      warp_.multiply_queries(k_tile(0), [] {});
      const chosen_tile next = chooser_.next(now.tile + 1);
      prim::cuda::wait_copies<0>();
      __syncthreads();  // the values have arrived, and everyone is done with the keys
      copy_keys(keys_of(next.tile), 0);
      prim::cuda::commit_copies();
      one_tile(now, 0);
      now = next;
      prim::cuda::wait_copies<0>();
      __syncthreads();  // the next keys have arrived, and everyone is done with the values
    }
  }

  /// A tile arrives while the one before is worked on. `stage` is 0 or 1, and `first_tile` more for
  /// the first tile, whose values may arrive after its keys.
  __device__ __forceinline__ void tiles_in_two_stages(chosen_tile now) {
    constexpr int first_tile = 2;
    copy_keys(keys_of(now.tile), 0);
    prim::cuda::commit_copies();
    copy_values(values_of(now.tile), 0);
    prim::cuda::commit_copies();
    if (known_.negate || early) {
      prim::cuda::wait_copies<1>();
      __syncthreads();  // queries and keys have arrived
      take_queries();
    }
    for (int stage = early ? first_tile : 0; now.tile < known_.keys.last_tile;) {
      const chosen_tile next = chooser_.next(now.tile + 1);
      const tile_source values = values_of(next.tile);
      if (!early || stage < first_tile) {
        prim::cuda::wait_copies<0>();
        __syncthreads();  // this tile has arrived, and everyone is done with the one before
      }
      const int here = stage % 2;
      copy_values(values, here ^ 1);
      tile_source keys{};
      warp_.multiply_queries(k_tile(here), [&] { keys = keys_of(next.tile); });
      if (early && stage >= first_tile) {
        prim::cuda::wait_copies<0>();
        __syncthreads();
      }
      copy_keys(keys, here ^ 1);
      prim::cuda::commit_copies();
      one_tile(now, here);
      now = next;
      stage = here ^ 1;
    }
  }

  /// Products are in `scores_`, values in shared memory.
  __device__ __forceinline__ void one_tile(const chosen_tile& now, int stage) {
    const int key0 = now.tile * traits::block_kv;
    const bool whole = known_.keys.full_begin <= key0 &&
                       known_.keys.full_end >= key0 + traits::block_kv && now.whole &&
                       (!modifiers::changes || args_.plain);
    bool not_finite = false;
    const std::uint32_t values = v_tile(stage);
    if (!whole) {
      warp_.modify_scores(key0, !now.whole);
      if (known_.keys.end < key0 + traits::block_kv && traits::aligned) {
        v_loader::clear_from(values, known_.keys.end - key0);
        __syncthreads();
      }
    }
    // Parts of an infinite f32 value are NaN: also rows that see it need it whole.
    if ((!whole || traits::splits) && known_.careful) {
      not_finite = __syncthreads_or(v_loader::has_not_finite(values)) != 0;
      if (not_finite) {
        v_loader::keep_finite(values);
        __syncthreads();
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
      for (std::uint32_t& word : four) word ^= traits::splits ? 0x80000000u : 0x80008000u;
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
#pragma unroll
        for (int d = 0; d < traits::v_tiles; ++d) {
          gather_pair(static_cast<unsigned>(r), d, warp_.sums(m, d).at[2 * half] * scale,
                      warp_.sums(m, d).at[2 * half + 1] * scale);
        }
      }
    }
    __syncwarp();
    constexpr int lanes = traits::out_tile::chunks >= 16 ? 16 : 8;
    const auto lane = static_cast<unsigned>(warp::lane());
    const int first = warp::first_of_warp() + static_cast<int>(lane / lanes);
    if (args_.group.value == 1 && args_.aligned_out && traits::aligned) {
      const unsigned chunks = static_cast<unsigned>(traits::v_units(args_.call)) / 8;
      auto* out = out_row(known_.range.first_row + first, known_.range.kv_head);
      const int left = known_.range.visible - first;
#pragma unroll 4
      for (int r = 0; r < traits::rows_of_warp; r += 32 / lanes) {
#pragma unroll
        for (unsigned at = 0; at < traits::out_tile::chunks; at += lanes) {
          const unsigned chunk = at + lane % lanes;
          if (traits::out_tile::chunks % lanes != 0 && chunk >= traits::out_tile::chunks) continue;
          std::uint32_t four[4];
          prim::cuda::load_shared_16(
              four, q_tile_ + traits::out_tile::offset(static_cast<unsigned>(first + r), chunk));
          if (r < left && chunk < chunks) {
            *reinterpret_cast<uint4*>(out + chunk * 8) =
                make_uint4(four[0], four[1], four[2], four[3]);
          }
        }
        out += 32 / lanes * traits::units * args_.call.out_strides.row;
      }
      return;
    }
#pragma unroll 1
    for (int r = first; r < warp::first_of_warp() + traits::rows_of_warp; r += 32 / lanes) {
      if (r >= known_.range.visible) break;
      const query_row row = query_of(args_, known_.range.kv_head, known_.range.first_row + r);
      write_row<typename traits::out_tile>(q_tile_, r, out_row(row.query, row.head),
                                           traits::units * args_.call.v_head_dim, args_.aligned_out,
                                           static_cast<int>(lane % lanes), lanes);
    }
  }

  __device__ __forceinline__ std::uint16_t* out_row(int query, int head) const {
    return reinterpret_cast<std::uint16_t*>(
        token_row<typename traits::stored>(args_.call.out, args_.call.out_strides, known_.range.seq,
                                           known_.range.seq.q_begin + query, head));
  }

  /// Elements 8 d + 2t and 8 d + 2t + 1 of a row of `out_tile`.
  __device__ __forceinline__ void gather_pair(unsigned row, int d, float low, float high) const {
    using tile = typename traits::out_tile;
    const auto column = static_cast<std::uint32_t>(d);
    const auto t = static_cast<std::uint32_t>(warp::lane() % 4);
    if constexpr (traits::splits) {
      const std::uint32_t to = q_tile_ + tile::offset(row, t / 2) + t % 2 * 8;
      prim::cuda::store_shared_8((to ^ (column % 4 * 32)) + column / 4 * 128, __float_as_uint(low),
                                 __float_as_uint(high));
    } else {
      const std::uint32_t to = q_tile_ + tile::offset(row, 0) + t * 4;
      prim::cuda::store_shared_4((to ^ (column % 8 * 16)) + column / 8 * 128,
                                 prim::cuda::half_words<typename traits::element>::pack(low, high));
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
  tile_chooser<traits, Hooks> chooser_;
};

/// One block of query rows and one split of its keys per thread block.
template <class Row, int Width, class Tokens, class Hooks>
__global__ void __launch_bounds__(resolved(Row::config).tiling.warps * 32,
                                  resolved(Row::config).tiling.blocks_per_sm)
    forward_kernel(const __grid_constant__ launch_args args, const __grid_constant__ Hooks hooks) {
  extern __shared__ __align__(1024) unsigned char shared[];
  using block = forward_block<Row, Width, Tokens, Hooks>;
  __shared__ typename block::state known;
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  block(args, hooks, known, prim::cuda::shared_address(shared))
      .run(static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
}

}  // namespace tessera::flash::sm80
