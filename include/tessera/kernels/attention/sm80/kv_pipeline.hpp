// Tiles of keys and values on their way to shared memory while others are worked on.
//
// For each tile of keys, `now`, before the tile `next`:
//
//   values_ahead = locate_values(now, next)  where they lie, a while before that is needed
//   wait_for_keys()                          the keys of `now` are there
//   prefetch_values(values_ahead)
//   prefetch_among(step)                     after each step of the products with the keys
//   keys_ahead = locate_keys(next)
//   wait_for_values()                        the values of `now` are there
//   prefetch_keys(keys_ahead)
//   advance()
//
// Of two stages, a tile arrives while the one before is worked on: keys and values of `next` are
// asked for, at the two places or (`Traits::spreads_copies`) among the steps between them. Of one
// stage, values arrive while scores are computed and the next keys while values are worked on:
// asked for are the values of `now` and the keys of `next`.
//
// A warp that works on a group of heads (`Traits::grouped`) has two stages, three where blocks have
// items, and is done with one tile before it asks for another in its place: prefetch_tile(now)
// instead of all but advance().
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/sm80/key_source.hpp>
#include <tessera/kernels/attention/sm80/kv_tiles.hpp>
#include <tessera/kernels/attention/sm80/tile_iterator.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/pipeline.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Reads from shared memory where each tile comes from.
template <class Traits, class State, bool KeepsSources = Traits::keeps_sources>
class kv_pipeline : public kv_tiles<Traits, State> {
  using base = kv_tiles<Traits, State>;
  using typename base::source;

 public:
  using base::base;

  /// Of groups: where the first tiles lie, one for each stage, all looked up at once.
  struct located_tile {
    typename base::rows_of_tile from;
    int first;
    int limit;  ///< no later than `first` if there is no such tile
  };
  struct first_tiles {
    located_tile k[Traits::stages], v[Traits::stages];
  };
  __device__ __forceinline__ first_tiles locate_first_tiles(const key_pass<source>& pass) const {
    first_tiles tiles;
#pragma unroll
    for (int stage = 0; stage < Traits::stages; ++stage) {
      const int tile = pass.keys.first_tile + stage;
      tiles.k[stage] = located(pass.keys, pass.k, tile);
      tiles.v[stage] = located(pass.keys, pass.v, tile);
    }
    return tiles;
  }
  /// Asks for all of them but the last, of which the queries belong to the first keys.
  __device__ __forceinline__ void copy_first_tiles(const first_tiles& tiles) {
#pragma unroll
    for (int stage = 0; stage + 1 < Traits::stages; ++stage) {
      this->copy_keys(tiles.k[stage].from, tiles.k[stage].first, tiles.k[stage].limit, stage);
      if (stage == 0) pipeline_.commit();
      this->copy_values(tiles.v[stage].from, tiles.v[stage].first, tiles.v[stage].limit, stage);
      pipeline_.commit();
    }
    keys_ahead_ = tiles.k[Traits::stages - 1];
    values_ahead_ = tiles.v[Traits::stages - 1];
  }

  __device__ __forceinline__ void begin(const key_pass<source>& pass, const key_tile& now) {
    pipeline_ = {};  // the first tile lies in stage 0
    if constexpr (Traits::has_token_scales) {
      const int first = now.index * Traits::block_kv;
      if (pass.k.scale0 != nullptr) {
        scales_of_keys_[0] = pass.k.template located<Traits::block_kv>(first).scales();
      }
      if (pass.v.scale0 != nullptr) {
        scales_of_values_[0] = pass.v.template located<Traits::block_kv>(first).scales();
      }
    }
  }
  __device__ __forceinline__ const key_range& range() const {
    return this->block_.keys;
  }

  __device__ __forceinline__ std::uint32_t keys() const {
    return this->k_tile(pipeline_.stage());
  }
  __device__ __forceinline__ std::uint32_t values() const {
    return this->v_tile(pipeline_.stage());
  }

  /// Elements of 8 bits: scales of the tile's keys, and of its values.
  __device__ __forceinline__ const lane_scales<Traits::block_kv>& key_scales() const {
    return scales_of_keys_[0];
  }
  __device__ __forceinline__ const lane_scales<Traits::block_kv>& value_scales() const {
    return scales_of_values_[0];
  }

  __device__ __forceinline__ located_tile locate_values(const key_tile& now,
                                                        const key_tile& next) const {
    return located(this->block_.v, Traits::stages == 2 ? next.index : now.index);
  }
  __device__ __forceinline__ located_tile locate_keys(const key_tile& next) const {
    return located(this->block_.k, next.index);
  }

  __device__ __forceinline__ void wait_for_keys() {
    pipeline_.wait();
  }
  __device__ __forceinline__ void wait_for_values() {
    if constexpr (Traits::stages == 1) pipeline_.wait();
  }
  __device__ __forceinline__ void prefetch_values(const located_tile& tile) {
    this->copy_values(tile.from, tile.first, tile.limit, pipeline_.next_stage());
    if constexpr (Traits::has_token_scales) {
      if (tile.from.scale0 != nullptr) scales_of_values_[1] = tile.from.scales();
    }
    if constexpr (Traits::stages == 1) pipeline_.commit();
  }
  __device__ __forceinline__ void prefetch_among(int) {}
  __device__ __forceinline__ void prefetch_keys(const located_tile& tile) {
    this->copy_keys(tile.from, tile.first, tile.limit, pipeline_.next_stage());
    if constexpr (Traits::has_token_scales) {
      if (tile.from.scale0 != nullptr) scales_of_keys_[1] = tile.from.scales();
    }
    pipeline_.commit();
  }
  /// Of a warp that is done with the tile before `now`: asks for keys and values of a tile in that
  /// one's place, for where those of the tile behind it lie, and waits until those of `now` are
  /// there.
  __device__ __forceinline__ void prefetch_tile(const key_tile& now) {
    __syncwarp();
    copy_ahead(pipeline_.stage() == 0 ? Traits::stages - 1 : pipeline_.stage() - 1);
    locate_ahead(now.index + Traits::stages);
    prim::cuda::wait_copies<Traits::stages - 1>();
    __syncwarp();
  }
  __device__ __forceinline__ void advance() {
    pipeline_.advance();
    if constexpr (Traits::has_token_scales) {
      scales_of_keys_[0] = scales_of_keys_[1];
      scales_of_values_[0] = scales_of_values_[1];
    }
  }

 private:
  static __device__ __forceinline__ located_tile located(const key_range& keys, const source& from,
                                                         int tile) {
    const int limit = tile < keys.last_tile ? keys.end : 0;
    const int first = tile * Traits::block_kv;
    return {from.template located<Traits::block_kv>(first), first, limit};
  }
  __device__ __forceinline__ located_tile located(const source& from, int tile) const {
    return located(this->block_.keys, from, tile);
  }
  __device__ __forceinline__ void locate_ahead(int tile) {
    values_ahead_ = located(this->block_.v, tile);
    keys_ahead_ = located(this->block_.k, tile);
  }
  __device__ __forceinline__ void copy_ahead(int stage) {
    this->copy_values(values_ahead_.from, values_ahead_.first, values_ahead_.limit, stage);
    this->copy_keys(keys_ahead_.from, keys_ahead_.first, keys_ahead_.limit, stage);
    pipeline_.commit();
  }

  prim::cuda::pipeline<Traits::stages> pipeline_;
  /// Grouped: looked up while another tile is worked on.
  std::conditional_t<Traits::grouped, located_tile, std::nullptr_t> values_ahead_{}, keys_ahead_{};
  /// Of the tile that is worked on and of the next one.
  lane_scales<Traits::block_kv> scales_of_keys_[Traits::has_token_scales ? 2 : 1];
  lane_scales<Traits::block_kv> scales_of_values_[Traits::has_token_scales ? 2 : 1];
};

/// Keeps in registers where a thread's part of the next tile comes from (walks down keys and
/// values, `left_` rows) and goes to. The first products begin before the first values have
/// arrived.
template <class Traits, class State>
class kv_pipeline<Traits, State, true> : public kv_tiles<Traits, State> {
  static_assert(sizeof(State) + 1024 <= most_static_bytes);
  using base = kv_tiles<Traits, State>;
  using typename base::pipeline;
  using typename base::source;
  static constexpr std::uint32_t other_stage = Traits::k_tile::bytes;
  static constexpr std::uint32_t to_values = Traits::stages * Traits::k_tile::bytes;

 public:
  using base::base;

  __device__ __forceinline__ void begin(const key_pass<source>& pass, const key_tile& now) {
    range_ = pass.keys;
    const auto line = static_cast<int>(threadIdx.x / 8);
    chunk_ = threadIdx.x % 8;
    const int row = now.index * Traits::block_kv + line;
    k_ = pass.k.walk(this->args_.call.k_strides.row, row, chunk_ * 8);
    v_ = pass.v.walk(this->args_.call.v_strides.row, row, chunk_ * 8);
    left_ = range_.end - row;
    here_ = this->k_tile(0);
    to_ = here_ + Traits::k_tile::offset(threadIdx.x / 8, chunk_);
    if constexpr (Traits::keeps_addresses) {
      here_ = prim::cuda::computed_anew(here_);
      to_ = prim::cuda::computed_anew(to_);
    }
    first_ = true;
  }
  __device__ __forceinline__ const key_range& range() const { return range_; }

  __device__ __forceinline__ std::uint32_t keys() const { return here_; }
  __device__ __forceinline__ std::uint32_t values() const { return here_ + to_values; }

  struct rows_ahead {
    int rows;
    bool any;
  };
  struct same_rows {};
  __device__ __forceinline__ rows_ahead locate_values(const key_tile& now,
                                                      const key_tile& next) const {
    return {(next.index - now.index) * Traits::block_kv, next.index < range_.last_tile};
  }
  __device__ __forceinline__ same_rows locate_keys(const key_tile&) const { return {}; }

  __device__ __forceinline__ void wait_for_keys() {
    if (!first_) pipeline::wait();
  }
  __device__ __forceinline__ void wait_for_values() {
    if (first_) pipeline::wait();
    first_ = false;
  }
  __device__ __forceinline__ void prefetch_values(const rows_ahead& ahead) {
    to_ ^= other_stage;
    k_.down(ahead.rows);
    v_.down(ahead.rows);
    left_ = ahead.any ? left_ - ahead.rows : 0;
    if constexpr (!Traits::spreads_copies) {
      base::v_loader::copy_lines(to_ + to_values, v_, left_, Traits::v_units(this->args_.call),
                                 chunk_);
    }
  }
  /// A pass of the copies at every few steps: those of values, then those of keys.
  __device__ __forceinline__ void prefetch_among(int step) {
    if constexpr (Traits::spreads_copies) {
      constexpr int values = base::v_loader::passes;
      constexpr int keys = base::k_loader::passes;
      constexpr int apart = Traits::dim_groups / (values + keys);
      static_assert(apart > 0, "a step has one pass at most");
      const int pass = step / apart;
      if (step % apart != 0 || pass >= values + keys) return;
      if (pass < values) {
        copy_pass<typename base::v_loader>(pass, to_ + to_values, v_,
                                           Traits::v_units(this->args_.call));
      } else {
        copy_pass<typename base::k_loader>(pass - values, to_, k_,
                                           Traits::k_units(this->args_.call));
      }
    }
  }
  __device__ __forceinline__ void prefetch_keys(const same_rows&) {
    if constexpr (!Traits::spreads_copies) {
      base::k_loader::copy_lines(to_, k_, left_, Traits::k_units(this->args_.call), chunk_);
    }
    pipeline::commit();
  }
  __device__ __forceinline__ void advance() { here_ ^= other_stage; }

 private:
  using walk = typename source::walk_type;

  template <class Loader>
  __device__ __forceinline__ void copy_pass(int pass, std::uint32_t to, walk from,
                                            int width) const {
    if (pass > 0) Loader::go_down(from, pass);
    Loader::copy_pass(pass, to, from, left_, width, chunk_);
  }

  key_range range_{};
  walk k_{};
  walk v_{};
  int left_ = 0;
  unsigned chunk_ = 0;
  std::uint32_t here_ = 0;
  std::uint32_t to_ = 0;
  bool first_ = true;  ///< the first values may still be under way
};

}  // namespace tessera::kernels::attention::sm80
