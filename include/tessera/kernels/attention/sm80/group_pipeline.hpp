// Tiles of keys and values of a warp that works on a group of heads alone (group_tile.hpp), on
// their way to shared memory: all stages are asked for before the first tile is worked on, and a
// stage again when its tile is done with. Keys and values lie at the same places of their pools.
//
//   first = locate_first(pass)      where the first tiles lie
//   copy_first(pass, first)         behind the queries, which arrive on their own
//   begin(), wait_for_queries()
//   wait_for_tile()                 the tile that is worked on is there
//   advance()                       it is done with
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/sm80/kv_tiles.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/pipeline.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Traits, class State>
class group_pipeline : public kv_tiles<Traits, State> {
  using base = kv_tiles<Traits, State>;
  using tile = typename Traits::k_tile;
  using typename base::source;
  static_assert(std::is_same_v<tile, typename Traits::v_tile>);

 public:
  using base::base;

  struct located_tile {
    typename base::rows_of_tile from;
    int first;
    int limit;  ///< no later than `first` if there is no such tile
  };
  /// One for each stage, and the one behind: looked up at once.
  struct first_tiles {
    located_tile of[Traits::stages + 1];
  };
  __device__ __forceinline__ first_tiles locate_first(const key_pass<source>& pass) const {
    first_tiles tiles;
#pragma unroll
    for (int n = 0; n <= Traits::stages; ++n) {
      tiles.of[n] = located(pass.keys, pass.k, pass.keys.first_tile + n);
    }
    return tiles;
  }
  __device__ __forceinline__ void copy_first(const key_pass<source>& pass,
                                             const first_tiles& tiles) {
    values_behind_ = pass.v.page0 - pass.k.page0;
    this->end_queries();
#pragma unroll
    for (int stage = 0; stage < Traits::stages; ++stage) copy(tiles.of[stage], stage);
    ahead_ = tiles.of[Traits::stages];
  }

  __device__ __forceinline__ void begin() {
    pipeline_ = {};
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

  __device__ __forceinline__ void wait_for_queries() const {
    prim::cuda::wait_copies<Traits::stages>();
    __syncwarp();
  }
  __device__ __forceinline__ void wait_for_tile() const {
    prim::cuda::wait_copies<Traits::stages - 1>();
    __syncwarp();
  }
  /// Where the next tile lies is known.
  struct known {};
  __device__ __forceinline__ known locate_keys(const key_tile&) const {
    return {};
  }
  __device__ __forceinline__ void advance() {
    __syncwarp();
    copy(ahead_, pipeline_.stage());
    ahead_ = located(this->block_.keys, this->block_.k, ahead_.first / Traits::block_kv + 1);
    pipeline_.advance();
  }

 private:
  static __device__ __forceinline__ located_tile located(const key_range& keys, const source& from,
                                                         int number) {
    const int first = number * Traits::block_kv;
    return {from.template located<Traits::block_kv>(first), first,
            number < keys.last_tile ? keys.end : 0};
  }

  /// Whole rows, as many at once as a warp has lanes for: neighbours in memory at the same time.
  __device__ __forceinline__ void copy(const located_tile& of, int stage) const {
    constexpr int rows_at_once = prim::cuda::warp_size / tile::chunks;
    const unsigned lane = prim::cuda::thread_index();
    const unsigned chunk = lane % tile::chunks;
    const std::int64_t stride = this->args_.call.k_strides.row;
#pragma unroll
    for (int pass = 0; pass < tile::rows / rows_at_once; ++pass) {
      const unsigned row = static_cast<unsigned>(pass * rows_at_once) + lane / tile::chunks;
      const auto* const from = of.from.row(stride, of.first + static_cast<int>(row)) + chunk * 8;
      const std::uint32_t to = tile::offset(row, chunk);
      const bool wanted = of.first + static_cast<int>(row) < of.limit;
      prim::cuda::copy_async_16_if(wanted, this->k_tile(stage) + to, from);
      prim::cuda::copy_async_16_if(wanted, this->v_tile(stage) + to, from + values_behind_);
    }
    prim::cuda::commit_copies();
  }

  prim::cuda::pipeline<Traits::stages> pipeline_;
  std::ptrdiff_t values_behind_ = 0;  ///< keys, of the same place
  located_tile ahead_{};              ///< looked up while another tile is worked on
};

}  // namespace tessera::kernels::attention::sm80
