// Forward attention with wgmma: a block of query rows against tiles of keys.
//
// A block stays for the whole launch. Two of its warps take work tiles and bring queries, keys and
// values (producer.hpp), one has finished rows written (row_store.hpp); the other warpgroups have
// 64 rows of the tile each and are independent of one another: they drift apart, so that the
// products of one hide the softmax of the others.
//
// J. Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision", arXiv:2407.08608, for roles of warpgroups and for products with keys and values
// under way at the same time. What was measured: NOTES.md of this folder.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/sm90/changed_tiles.hpp>
#include <tessera/kernels/attention/sm90/epilogue.hpp>
#include <tessera/kernels/attention/sm90/functor_rows.hpp>
#include <tessera/kernels/attention/sm90/key_parts.hpp>
#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/score_products.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/tile_classes.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/trusted_weights.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention::sm90 {

/// One warpgroup of a block: 64 rows of every work tile.
template <class Traits>
class consumer {
  using plan = shared_plan<Traits>;
  using hooks_type = typename Traits::hooks;
  using mods = score_mod<Traits>;

 public:
  __device__ __forceinline__ consumer(const launch_args& args, const hooks_type& hooks,
                                      plan& shared, int warpgroup)
      : args_(args), hooks_(hooks), shared_(shared), warpgroup_(warpgroup) {}

  /// All tiles of this block.
  __device__ __forceinline__ void run() {
    for (;;) {
      tile_place_.wait_full(barriers_of_tile());
      const planned_tile<Traits>& planned = shared_.tile[tile_place_.stage()];
      if (planned.work.sequence < 0) break;
      attend(planned);
      __syncwarp();
      if (lane_index() == 0) {
        if constexpr (Traits::stores_boxes) {
          prim::cuda::arrive(
              tile_place_.full(prim::cuda::shared_address(&shared_.rows.are_done[warpgroup_])));
        }
        tile_place_.release(barriers_of_tile());
      }
      tile_place_.advance();
      if constexpr (Traits::from_first) {
        // Of a diagonal the first ends first, and takes the last rows of the next work tile.
        warpgroup_ = warpgroup_ == 0 ? Traits::consumers - 1 : warpgroup_ - 1;
      }
    }
  }

 private:
  /// One work tile.
  __device__ __forceinline__ void attend(const planned_tile<Traits>& planned) {
    const auto uniform = [](int x) { return __shfl_sync(prim::cuda::all_lanes, x, 0); };
    // Read anew where it is wanted: registers are for the loop.
    const tile_range& of_block = planned.tiles[Traits::consumers];
    const tile_range& own = planned.tiles[warpgroup_];
    const bool any_keys = own.first < own.last;
    // Without keys all tiles are passed at once.
    const int first = uniform(any_keys ? own.first : of_block.first);
    const int last = uniform(any_keys ? own.last : of_block.first);
    const int full_first = uniform(own.full_first);
    // Warpgroups that are not shown the same look at every tile: `look_up_listed`.
    const int full_last = uniform(shows_alike<Traits>(planned) ? own.full_last : 0);

    q_place().wait_full(barriers_of_q());
    if (!Traits::codes_of_heads && changes_queries<Traits>(args_)) {
      change_queries<Traits>(args_, places_of_rows());
    }
    lane_.queries.load(places_of_rows());
    // Tiles of other rows are passed on unread, those first that come before this warpgroup's.
    pass_tiles(planned, Traits::from_first ? uniform(of_block.first) : last,
               Traits::from_first ? first : uniform(of_block.last));
    const bool half = last - first > 1 && ends_with_half_of<Traits>(planned, warpgroup_, last);
    if (any_keys) {
      k_place_.wait_full(barriers_of_k());
      prim::cuda::begin_products();
      multiply_keys(lane_);
      int tile = Traits::from_first ? first : last - 1;
      if constexpr (Traits::walks_tiles) {
        lane_.walk = {};
        tile = lane_.walk.before(planned, warpgroup_, last, first);
      }
      read_rows(args_, hooks_, planned, warpgroup_, lane_);
      typename mods::biases ahead;
      mods(args_, hooks_, planned, lane_, warpgroup_).ask(tile, ahead);
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(lane_.scores);
      if (Traits::frees_queries_early && last - first == 1) release(barriers_of_q(), q_place());
      release_keys();
      if constexpr (Traits::codes_of_heads) set_scale(planned, lane_);
      bool hides = tile >= full_last || tile < full_first, begins = hides;
      look_up_listed<Traits>(planned, warpgroup_, tile, hides, begins);
      const bool uncapped = modify_scores(planned, tile, hides, ahead, false);
      if (hides) hide_scores(planned, tile, lane_);
      float most[2];
      set_reference(lane_, args_, uncapped, most);
      leave_out_unused(planned, warpgroup_, lane_);
      pair_rows(lane_);
      if constexpr (Traits::trusts_reference) lane_.looks = begins_to_look(lane_, args_, most);
      exponentiate(lane_, args_, uncapped, lane_.sum);
      if constexpr (Traits::drops) {
        kept_weights<Traits> kept;
        kept.draw(args_, planned, lane_, warpgroup_, tile);
        kept.apply(lane_);
      }
      round_weights(lane_);
#pragma unroll
      for (float& sum : lane_.out) sum = 0.0f;
      wait_beside_products(last - first > 1);
      if constexpr (Traits::from_first) {
        const int whole = last - (half ? 1 : 0);
        for (++tile; tile < whole; ++tile) {
          next_tile(planned, tile, tile >= full_last || tile < full_first, tile <= full_first,
                    tile + 1 != last, lane_);
        }
        if constexpr (ends_with_half<Traits>) {
          if (half) {
            auto lane = lane_of_half(lane_);
            next_tile(planned, tile, true, tile <= full_first, false, lane);
            take_half(lane_, lane);
          }
        }
      } else {
        clear_values(planned, tile);
      }
      for (--tile; !Traits::from_first && tile >= first; --tile) {
        // The last keys that a row sees may end with the first tile that all see.
        const bool begins = tile + 1 >= full_last;
        if constexpr (Traits::walks_tiles) {
          tile = lane_.walk.before(planned, warpgroup_, tile + 1, first);
          if (tile < first) break;
        } else if constexpr (Traits::classifies) {
          tile = shown_before(planned, tile + 1, first);
          if (tile < first) break;
        }
        next_tile(planned, tile, tile >= full_last || tile < full_first, begins, tile != first,
                  lane_);
      }
    }
    if constexpr (!Traits::stores_boxes || Traits::has_out_place) {
      if (!Traits::frees_queries_early || !any_keys) release(barriers_of_q(), q_place());
    }
    if (any_keys) {
      if constexpr (Traits::waits_late) v_place_.wait_full(barriers_of_v());
      if constexpr (Traits::from_first) clear_values(planned, last - 1);
      if (half) {
        end_values<Traits::block_kv / 2>();
      } else {
        end_values<Traits::block_kv>();
      }
      release_values();
    }
    pass_tiles(planned, Traits::from_first ? last : uniform(of_block.first),
               Traits::from_first ? uniform(of_block.last) : first);
    bool any_sums = own.first < own.last;
    if constexpr (Traits::lists) {
      if (is_listed<Traits>(args_) && planned.first_partial >= 0) {
        rows_of(planned).leave(any_sums);
        return;
      }
    }
    if constexpr (Traits::shares_keys) {
      if (planned.piece >= 0) {
        any_sums = key_parts<Traits>(args_, planned, shared_, lane_, warpgroup_).merge(any_sums);
        if (!any_sums) return;
      }
    }
    rows_of(planned).write(any_sums);
  }
  __device__ __forceinline__ epilogue<Traits> rows_of(const planned_tile<Traits>& planned) {
    return {args_, hooks_, shared_, planned, lane_, warpgroup_, tile_place_.stage()};
  }

  /// Products with the keys of a tile and with the values of the one before, together; the softmax
  /// of the first under the second. `hides`: rows do not see all of the keys; `begins`: they may
  /// have seen none before; `goes_on`: waits_late: there is a further tile.
  template <class Part>
  __device__ __forceinline__ void next_tile(const planned_tile<Traits>& planned, int tile,
                                            bool hides, bool begins, bool goes_on,
                                            lane_tile<Part>& lane) {
    if constexpr (!Traits::waits_late) k_place_.wait_full(barriers_of_k());
    prim::cuda::keep_in_place(lane_.weights);
    prim::cuda::keep_in_place(lane_.out);
    prim::cuda::begin_products();
    multiply_keys(lane);
    if constexpr (Traits::waits_late) {
      v_place_.wait_full(barriers_of_v());
      prim::cuda::begin_products();
    }
    multiply_values();
    // Beside products, so that nobody waits for it.
    look_up_listed<Traits>(planned, warpgroup_, tile, hides, begins);
    kept_weights<Traits> kept;
    if constexpr (!Traits::draws_late) kept.draw(args_, planned, lane_, warpgroup_, tile);
    typename mods::biases ahead;
    mods(args_, hooks_, planned, lane_, warpgroup_).ask(tile, ahead);
    prim::cuda::wait_products<1>();
    prim::cuda::keep_in_place(lane.scores);
    const bool follows =
        (hides && !Traits::trusts_far_edge) || begins || args_.follows_maximum || lane.looks;
    // Where nobody looks for maxima products may have to be made again.
    const bool keeps_keys = Traits::trusts_reference && !Traits::divides_weights && !follows;
    const std::uint32_t keys = prim::cuda::shared_address(&shared_.k[k_place_.stage()]);
    if (Traits::frees_queries_early && !goes_on) release(barriers_of_q(), q_place());
    if (!keeps_keys) release_keys();
    if constexpr (Traits::codes_of_heads) set_scale(planned, lane);
    const bool paired = weighs_pairs(lane, follows);
    const bool uncapped = modify_scores(planned, tile, hides, ahead, paired);
    if (hides) hide_scores(planned, tile, lane);
    const bool moved = Traits::trusts_reference
                           ? weigh_by_reference(
                                 lane, args_, follows, places_of_rows(), keys, factors(),
                                 [&] {
                                   if (hides) hide_scores(planned, tile, lane);
                                 },
                                 [&] { kept.draw(args_, planned, lane_, warpgroup_, tile); })
                           : follow_maximum(lane, args_, uncapped, factors());
    if constexpr (Traits::trusts_reference) {
      if (keeps_keys) release_keys();
      kept.apply(lane_);
    } else {
      exponentiate_kept(lane, args_, uncapped, kept);
    }
    prim::cuda::keep_in_place(lane.scores);
    // The wait's loop ends a basic block: without one, ptxas moves exponentials behind the wait
    // below, where they have no products beside them.
    wait_beside_products(goes_on);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(lane_.out);
    prim::cuda::keep_in_place(lane_.weights);
    release_values();
    if (moved) rescale_out(lane_, factors());
    // Only now: ptxas runs products one after the other where registers of a later one are written
    // while one is under way.
    round_weights(lane);
  }

  /// scores = Q K^T
  template <class Part>
  __device__ __forceinline__ void multiply_keys(lane_tile<Part>& lane) {
    const std::uint64_t a = prim::cuda::describe_panels(
        places_of_rows() + prim::cuda::unknown_zero(k_place_.stage()), 16);
    const std::uint64_t b =
        prim::cuda::describe_panels(prim::cuda::shared_address(&shared_.k[k_place_.stage()]), 16);
    multiply_scores(lane, a, b);
    prim::cuda::commit_products();
  }

  /// out += weights V, of the first keys of a tile.
  template <int Keys = Traits::block_kv>
  __device__ __forceinline__ void multiply_values() {
    multiply_weights<Traits, Keys>(lane_, prim::cuda::shared_address(&shared_.v[v_place_.stage()]));
  }

  /// The products of the last weights.
  template <int Keys>
  __device__ __forceinline__ void end_values() {
    prim::cuda::keep_in_place(lane_.weights);
    prim::cuda::keep_in_place(lane_.out);
    prim::cuda::begin_products();
    multiply_values<Keys>();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(lane_.out);
  }

  /// Values of a tile behind the end of the sequence, which the last of its tiles may have.
  __device__ __forceinline__ void clear_values(const planned_tile<Traits>& planned, int tile) {
    if (Traits::codes_of_heads || !args_.clears_values) return;
    if constexpr (Traits::waits_late) v_place_.wait_full(barriers_of_v());
    clear_missing_values<Traits>(
        prim::cuda::shared_address(&shared_.v[v_place_.stage()]),
        planned.work.k_len - keys_of_tile(planned, tile) * Traits::block_kv);
  }

  /// Products become logits, -inf where something but a row's interval of keys hides them. `clips`:
  /// the tile has keys outside of a row's interval; `paired`: distances are left to the exponents.
  /// True if a cap is left to `exponentiate`.
  __device__ __forceinline__ bool modify_scores(const planned_tile<Traits>& planned, int tile,
                                                bool clips, typename mods::biases& ahead,
                                                bool paired) {
    if constexpr (Traits::adds_distances) {
      find_lacks(tile, lane_);
      if (!paired) add_distances(args_, lane_);
    } else if constexpr (Traits::modifies && !Traits::whole_tiles) {
      return mods(args_, hooks_, planned, lane_, warpgroup_).apply(tile, !clips, ahead);
    }
    return false;
  }

  template <class Part>
  __device__ __forceinline__ void hide_scores(const planned_tile<Traits>& planned, int tile,
                                              lane_tile<Part>& lane) {
    if constexpr (!mods::hides_outside) {
      hide_outside(planned, warpgroup_, keys_of_tile(planned, tile), lane);
    }
  }

  /// Tiles of keys at one end that none of this warpgroup's rows sees. They must have arrived, or a
  /// release would count for the tile before.
  __device__ __forceinline__ void pass_tiles(const planned_tile<Traits>& planned, int first,
                                             int last) {
#pragma unroll 1
    for (int tile = last - 1; tile >= first; --tile) {
      if constexpr (Traits::classifies) {
        tile = shown_before(planned, tile + 1, first);
        if (tile < first) break;
      }
      k_place_.wait_full(barriers_of_k());
      release_keys();
      wait_for_values();
      release_values();
    }
  }

  /// The factors of this lane's two rows.
  __device__ __forceinline__ float2* factors() const {
    return shared_.factors + (prim::cuda::thread_index() - prim::cuda::warpgroup_size) / 4;
  }

  static __device__ __forceinline__ unsigned lane_index() {
    return prim::cuda::thread_index() % prim::cuda::warp_size;
  }
  /// The queries of the warpgroup's rows.
  __device__ __forceinline__ std::uint32_t places_of_rows() const {
    return place_of_queries(shared_, q_place().stage(), warpgroup_);
  }
  template <class Place>
  static __device__ __forceinline__ void release(std::uint32_t barriers, const Place& place) {
    if (lane_index() == 0) place.release(barriers);
  }
  __device__ __forceinline__ void release_keys() {
    release(barriers_of_k(), k_place_);
  }
  __device__ __forceinline__ void release_values() {
    release(barriers_of_v(), v_place_);
    v_place_.advance();
  }
  /// What the next tile wants first, once the keys of this one have been released.
  __device__ __forceinline__ void wait_beside_products(bool goes_on) {
    if constexpr (Traits::waits_late) {
      k_place_.advance();
      if (goes_on) k_place_.wait_full(barriers_of_k());
    } else {
      wait_for_values();
    }
  }
  /// The values of the tile whose keys have been released: in the same place of their ring.
  __device__ __forceinline__ void wait_for_values() {
    k_place_.wait_full(barriers_of_v());
    k_place_.advance();
  }
  /// The queries of the work tile: as many have been before as work tiles.
  __device__ __forceinline__ prim::cuda::ring_place<Traits::q_stages> q_place() const {
    return prim::cuda::ring_place<Traits::q_stages>::beside(tile_place_);
  }

  __device__ __forceinline__ std::uint32_t barriers_of_tile() const {
    return prim::cuda::shared_address(&shared_.of_tile);
  }
  __device__ __forceinline__ std::uint32_t barriers_of_q() const {
    return prim::cuda::shared_address(&shared_.of_q);
  }
  __device__ __forceinline__ std::uint32_t barriers_of_k() const {
    return prim::cuda::shared_address(&shared_.of_k);
  }
  __device__ __forceinline__ std::uint32_t barriers_of_v() const {
    return prim::cuda::shared_address(&shared_.of_v);
  }

  const launch_args& args_;
  const hooks_type& hooks_;
  plan& shared_;
  int warpgroup_;  ///< its rows of the work tile
  lane_tile<Traits> lane_;
  prim::cuda::ring_place<2> tile_place_;
  prim::cuda::ring_place<Traits::kv_stages> k_place_;  ///< of values too, until they have arrived
  prim::cuda::ring_place<Traits::kv_stages> v_place_;  ///< of values in use
};

}  // namespace tessera::kernels::attention::sm90
