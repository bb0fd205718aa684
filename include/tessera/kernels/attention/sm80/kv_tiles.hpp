// Where tiles of keys and values lie in shared memory, how they are asked for, and what is done to
// them there (kv_pipeline.hpp has their order).
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/kernels/attention/sm80/key_source.hpp>
#include <tessera/kernels/attention/sm80/tile_iterator.hpp>
#include <tessera/kernels/attention/sm80/tile_loader.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/widening.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/pipeline.hpp>

namespace tessera::kernels::attention::sm80 {

/// What a pass over the keys begins with.
template <class Source>
struct key_pass {
  key_range keys;
  Source k;
  Source v;
};

/// Places of the tiles, the copies of the first ones, and what is done to tiles in shared memory.
/// `State` is the `block_state`, which lies in shared memory.
template <class Traits, class State>
class kv_tiles {
 protected:
  using pipeline = prim::cuda::pipeline<Traits::stages>;
  using k_loader = tile_loader<Traits, typename Traits::k_tile>;
  using v_loader = tile_loader<Traits, typename Traits::v_tile>;
  using source = key_source_of<Traits>;

 public:
  __device__ __forceinline__ kv_tiles(const launch_args& args, const State& block,
                                      std::uint32_t q_tile)
      : args_(args), block_(block), q_tile_(q_tile) {}

  /// Where keys and values of the first tile lie.
  using rows_of_tile =
      decltype(std::declval<const source&>().template located<Traits::block_kv>(0));
  struct first_rows {
    rows_of_tile k, v;
  };
  __device__ __forceinline__ first_rows locate_first(const key_pass<source>& pass, int tile) const {
    const int first = tile * Traits::block_kv;
    return {pass.k.template located<Traits::block_kv>(first),
            pass.v.template located<Traits::block_kv>(first)};
  }
  /// Keys and values of the first tile. Of one stage only the keys: they arrive in turns.
  __device__ __forceinline__ void copy_first(const key_pass<source>& pass, const first_rows& rows,
                                             int tile) const {
    const int first = tile * Traits::block_kv;
    copy_keys(rows.k, first, pass.keys.end, 0);
    pipeline::commit();
    if constexpr (Traits::stages > 1) {
      copy_values(rows.v, first, pass.keys.end, 0);
      pipeline::commit();
    }
  }
  __device__ __forceinline__ void copy_first(const key_pass<source>& pass, int tile) const {
    copy_first(pass, locate_first(pass, tile), tile);
  }

  /// Queries arrive on their own, before keys: there is something to be done to them.
  __device__ __forceinline__ void end_queries() const { pipeline::commit(); }
  /// Queries are there, and the first keys unless the queries' arrival ended before.
  __device__ __forceinline__ void wait_for_queries() const {
    prim::cuda::wait_copies<Traits::codes ? Traits::stages : Traits::stages - 1>();
    sync_tiles<Traits>();
  }
  /// The queries are under way still if there was no tile to look at.
  __device__ __forceinline__ void drain() const { pipeline::drain(); }

  /// Zeros where tiles are wider than tokens: nothing else is written there.
  __device__ __forceinline__ void clear_columns() const {
    using q_loader = tile_loader<Traits, typename Traits::q_tile>;
    q_loader::clear_columns(q_tile_, Traits::q_units(args_.call));
#pragma unroll
    for (int stage = 0; stage < Traits::stages; ++stage) {
      k_loader::clear_columns(k_tile(stage), Traits::k_units(args_.call));
      v_loader::clear_columns(v_tile(stage), Traits::v_units(args_.call));
    }
  }

  /// Products of f32 that are not finite are computed again, and what an earlier block left behind
  /// the last key must not decide about it.
  __device__ __forceinline__ void clear_missing_keys(std::uint32_t keys,
                                                     const key_tile& tile) const {
    const int key0 = tile.index * Traits::block_kv;
    if (Traits::use_3xtf32 && Traits::aligned && block_.keys.end < key0 + Traits::block_kv) {
      k_loader::clear_from(keys, block_.keys.end - key0);
      __syncthreads();
    }
  }
  /// P is 0 behind the last key, and 0 times what was left there may be NaN.
  __device__ __forceinline__ void clear_missing_values(std::uint32_t values, int key0) const {
    if (block_.keys.end < key0 + Traits::block_kv && Traits::aligned) {
      v_loader::clear_from(values, block_.keys.end - key0);
      sync_tiles<Traits>();
    }
  }
  /// True if a value of the tile is infinite or NaN.
  __device__ __forceinline__ bool has_not_finite(std::uint32_t values) const {
    return __syncthreads_or(v_loader::has_not_finite(values)) != 0;
  }
  /// Puts 0 in the place of such values.
  __device__ __forceinline__ void keep_finite(std::uint32_t values) const {
    v_loader::keep_finite(values);
    __syncthreads();
  }

 protected:
  __device__ __forceinline__ std::uint32_t k_tile(int stage) const {
    return q_tile_ + Traits::q_bytes + stage * Traits::k_tile::bytes;
  }
  __device__ __forceinline__ std::uint32_t v_tile(int stage) const {
    return q_tile_ + Traits::q_bytes + Traits::stages * Traits::k_tile::bytes +
           stage * Traits::v_tile::bytes;
  }
  /// Keys from `first` on; none if `limit` is not behind it.
  template <class Located>
  __device__ __forceinline__ void copy_keys(const Located& k, int first, int limit,
                                            int stage) const {
    copy_tokens<k_loader>(k_tile(stage), k, args_.call.k_strides.row, first, limit,
                          Traits::k_units(args_.call));
  }
  template <class Located>
  __device__ __forceinline__ void copy_values(const Located& v, int first, int limit,
                                              int stage) const {
    copy_tokens<v_loader>(v_tile(stage), v, args_.call.v_strides.row, first, limit,
                          Traits::v_units(args_.call));
  }

  /// `stride` in elements, `width` in units of the tile.
  template <class Loader, class Located>
  __device__ __forceinline__ void copy_tokens(std::uint32_t tile, const Located& from,
                                              std::int64_t stride, int first, int limit,
                                              int width) const {
    if constexpr (Traits::widens_codes) {
      if (Traits::has_codes(args_.call)) {
        if (first >= limit) return;
        widen_rows<Traits, typename Loader::tile>(tile, from, stride, first, limit,
                                                  width / Traits::units, args_.call.pool_type);
        return;
      }
    }
    Loader::copy(tile, from, Traits::places_of(args_.call, stride), first, limit, width,
                 first < limit);
  }

  const launch_args& args_;
  const State& block_;
  std::uint32_t q_tile_;
};

}  // namespace tessera::kernels::attention::sm80
