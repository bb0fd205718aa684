// Forward flash attention with mma.sync: a block of query rows against tiles of keys, two tiles of
// keys and values in shared memory, one being worked on while the next arrives.
//
// T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
// arXiv:2307.08691, for the split of rows over warps; the conditional rescaling is that of
// FlashAttention-4. Measurements behind the choices: README.md of this folder.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/arrivals.hpp>
#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/finish.hpp>
#include <tessera/kernels/attention/sm80/output.hpp>
#include <tessera/kernels/attention/sm80/tiles.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/visible.hpp>
#include <tessera/kernels/attention/sm80/warp.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

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
  /// No tile is passed over: the first one is known before the block's state is.
  static constexpr bool every_tile = !traits::has(attention_feature::mask) &&
                                     !traits::has(attention_feature::segments) && !Hooks::has_mask;

 public:
  using state = typename warp::state;

  /// `known` and `tiles` (traits::shared_bytes, a multiple of 1024) lie in shared memory.
  __device__ __forceinline__ forward_block(const launch_args& args, const Hooks& hooks,
                                           state& known, std::uint32_t tiles)
      : args_(args),
        known_(known),
        q_tile_(traits::keeps_addresses ? prim::cuda::computed_anew(tiles) : tiles),
        warp_(args, hooks, known, q_tile_),
        chooser_(args, hooks, known.range, known.keys, known.window) {}

  /// True if the block has left sums of a split in the workspace; all threads know its rows then.
  __device__ __forceinline__ bool run(int item, int split) {
    const row_range range = rows_of_block<traits>(args_, item);
    if (range.rows <= 0) return false;
    if (range.visible > 0) copy_queries<traits>(args_, range, q_tile_);
    const auto visible = visibility_of<traits::config.mask>(args_.call, range.seq);
    work todo{keys_of_block<traits>(args_, range, visible, split),
              token_units<traits>(args_.call.k, args_.call.k_strides, range.seq, range.seq.k_begin,
                                  range.kv_head),
              token_units<traits>(args_.call.v, args_.call.v_strides, range.seq, range.seq.k_begin,
                                  range.kv_head)};
    const bool any = todo.keys.first_tile < todo.keys.last_tile;
    if (every_tile && any) copy_first(todo, todo.keys.first_tile);
    if (threadIdx.x == 0) {
      known_.range = range;
      known_.visible = visible;
      known_.keys = todo.keys;
      known_.k = todo.k;
      known_.v = todo.v;
      known_.careful = false;
      known_.negate = args_.negative_scale;
    }
    if (split == 0 && range.visible < range.rows) {
      write_empty_rows<traits>(args_, range, range.visible);
    }
    if (range.visible == 0) return false;
    warp_.clear();
    if (any) {
      // 0 times a value that is infinite or NaN reaches the sums of rows that must not see it; the
      // second time every value that some row must not see is looked at first.
      for (bool again = false;; again = true) {
        all_tiles(todo, again);
        const bool last = known_.careful;
        if (__syncthreads_or(warp_.has_not_finite()) == 0 || last) break;
        warp_.clear();
        if (threadIdx.x == 0) known_.careful = true;
        __syncthreads();
        todo = {known_.keys, known_.k, known_.v};
      }
    } else {
      wait_for_queries();
      __syncthreads();
    }
    const block_output<traits, warp> output(args_, known_, warp_, q_tile_);
    if (args_.splits > 1) {
      output.write_split(split);
      return true;
    }
    output.write_rows();
    return false;
  }

 private:
  /// What a pass over the keys begins with.
  struct work {
    key_range keys;
    const std::uint16_t* k;  ///< key 0 of the sequence, in units of 16 bits
    const std::uint16_t* v;
  };

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

  /// Keys and values of the first tile. Of one stage only the keys: they arrive in turns.
  __device__ __forceinline__ void copy_first(const work& todo, int tile) {
    const int first = tile * traits::block_kv;
    copy_keys({todo.k, first, todo.keys.end}, 0);
    prim::cuda::commit_copies();
    if constexpr (traits::stages == 2) {
      copy_values({todo.v, first, todo.keys.end}, 0);
      prim::cuda::commit_copies();
    }
  }
  /// They are still under way if there was no tile to look at.
  __device__ __forceinline__ void wait_for_queries() {
    prim::cuda::commit_copies();
    prim::cuda::wait_copies<0>();
  }

  /// One pass over the keys; the first, unless `again`, has the copies of its first tile under way
  /// if `every_tile`, and the state may not yet be there for everyone.
  __device__ __forceinline__ void all_tiles(const work& todo, bool again) {
    constexpr bool waits = traits::keeps_sources && every_tile;
    if (!waits && !again) __syncthreads();
    chooser_.begin();
    const chosen_tile now = chooser_.next(todo.keys.first_tile);
    if (!every_tile && now.tile >= todo.keys.last_tile) return wait_for_queries();
    if (!every_tile || again) copy_first(todo, now.tile);
    clear_columns();
    if constexpr (traits::keeps_sources) {
      tiles_with_sources(todo, now);
    } else if constexpr (traits::stages == 1) {
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
    prim::cuda::wait_copies<0>();
    __syncthreads();
    take_queries();
    while (now.tile < known_.keys.last_tile) {
      copy_values(values_of(now.tile), 0);
      prim::cuda::commit_copies();
      clear_missing_keys(now.tile * traits::block_kv);
      warp_.multiply_queries(k_tile(0), [] {});
      const chosen_tile next = chooser_.next(now.tile + 1);
      prim::cuda::wait_copies<0>();
      __syncthreads();  // the values have arrived, and everyone is done with the keys
      copy_keys(keys_of(next.tile), 0);
      prim::cuda::commit_copies();
      one_tile(now, v_tile(0), is_whole(now, known_.keys));
      now = next;
      prim::cuda::wait_copies<0>();
      __syncthreads();  // the next keys have arrived, and everyone is done with the values
    }
  }

  /// Products of f32 that are not finite are computed again, and what an earlier block left behind
  /// the last key must not decide about it.
  __device__ __forceinline__ void clear_missing_keys(int key0) {
    if (traits::splits && traits::aligned && known_.keys.end < key0 + traits::block_kv) {
      k_loader::clear_from(k_tile(0), known_.keys.end - key0);
      __syncthreads();
    }
  }

  /// A tile arrives while the one before is worked on.
  __device__ __forceinline__ void tiles_in_two_stages(chosen_tile now) {
    if (known_.negate || traits::shape.threads.q_in_registers) {
      prim::cuda::wait_copies<1>();
      __syncthreads();  // queries and keys have arrived
      take_queries();
    }
    for (int stage = 0; now.tile < known_.keys.last_tile; stage ^= 1) {
      const chosen_tile next = chooser_.next(now.tile + 1);
      const tile_source values = values_of(next.tile);
      prim::cuda::wait_copies<0>();
      __syncthreads();  // this tile has arrived, and everyone is done with the one before
      copy_values(values, stage ^ 1);
      tile_source keys{};
      warp_.multiply_queries(k_tile(stage), [&] { keys = keys_of(next.tile); });
      copy_keys(keys, stage ^ 1);
      prim::cuda::commit_copies();
      one_tile(now, v_tile(stage), is_whole(now, known_.keys));
      now = next;
    }
  }

  /// The same for rows that keep in registers where tiles come from (`k`, `v`, `left` rows) and go
  /// to. The first products begin before the first values have arrived.
  __device__ __forceinline__ void tiles_with_sources(const work& todo, chosen_tile now) {
    static_assert(sizeof(state) + 1024 <= most_static_bytes);
    constexpr std::uint32_t other_stage = traits::k_tile::bytes;
    constexpr std::uint32_t to_values = traits::stages * traits::k_tile::bytes;
    const key_range keys = todo.keys;
    const attention_kernel_args& call = args_.call;
    const std::int64_t k_stride = call.k_strides.row;
    const std::int64_t v_stride = call.v_strides.row;
    const auto line = static_cast<int>(threadIdx.x / 8);
    const unsigned chunk = threadIdx.x % 8;
    const int row = now.tile * traits::block_kv + line;
    const std::uint16_t* k = todo.k + row * k_stride + chunk * 8;
    const std::uint16_t* v = todo.v + row * v_stride + chunk * 8;
    int left = keys.end - row;
    std::uint32_t here = k_tile(0);
    std::uint32_t to = here + traits::k_tile::offset(threadIdx.x / 8, chunk);
    if constexpr (traits::keeps_addresses) {
      here = prim::cuda::computed_anew(here);
      to = prim::cuda::computed_anew(to);
    }
    prim::cuda::wait_copies<1>();
    __syncthreads();  // queries and keys have arrived
    take_queries();
    bool first = true;
    while (now.tile < keys.last_tile) {
      const chosen_tile next = chooser_.next(now.tile + 1);
      if (!first) {
        prim::cuda::wait_copies<0>();
        __syncthreads();  // this tile has arrived, and everyone is done with the one before
      }
      const int ahead = (next.tile - now.tile) * traits::block_kv;
      to ^= other_stage;
      k += ahead * k_stride;
      v += ahead * v_stride;
      left = next.tile < keys.last_tile ? left - ahead : 0;
      v_loader::copy_lines(to + to_values, v, v_stride, left, traits::v_units(call), chunk);
      warp_.multiply_queries(here, [] {});
      if (first) {
        prim::cuda::wait_copies<0>();
        __syncthreads();  // the first values have arrived
        first = false;
      }
      k_loader::copy_lines(to, k, k_stride, left, traits::qk_units(call), chunk);
      prim::cuda::commit_copies();
      one_tile(now, here + to_values, is_whole(now, keys));
      here ^= other_stage;
      now = next;
    }
  }

  /// True if every row of the block sees the whole tile, and its logits are products times the
  /// scale.
  __device__ __forceinline__ bool is_whole(const chosen_tile& now, const key_range& keys) const {
    const int key0 = now.tile * traits::block_kv;
    return keys.full_begin <= key0 && keys.full_end >= key0 + traits::block_kv && now.whole &&
           (!modifiers::changes || args_.plain);
  }

  /// Products are in `scores_`, values in shared memory at `values`.
  __device__ __forceinline__ void one_tile(const chosen_tile& now, std::uint32_t values,
                                           bool whole) {
    const int key0 = now.tile * traits::block_kv;
    bool not_finite = false;
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
    const bool moved = warp_.update_maxima();
    if constexpr (traits::rescales_among_products) {
      if (moved && !not_finite) {
        warp_.template multiply_values<old_sums>(key0, values);
        return;
      }
      if (moved) warp_.rescale();
    }
    if (not_finite) warp_.add_not_finite(key0);
    warp_.template multiply_values<rescaled_sums>(key0, values);
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
  const bool split = block(args, hooks, known, prim::cuda::shared_address(shared))
                         .run(static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  if constexpr (kernel_traits<Row, Width, Tokens>::merges_splits) {
    if (split && args.arrivals >= 0) {
      merge_if_late<kernel_traits<Row, Width, Tokens>, Row>(args, known.range,
                                                            static_cast<int>(blockIdx.x));
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
