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
  using values_product = prim::cuda::warpgroup_product<typename Traits::element, Traits::v_columns>;
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
    const int full_last = uniform(shows_alike(planned) ? own.full_last : 0);

    q_place().wait_full(barriers_of_q());
    if (!Traits::codes_of_heads && changes_queries<Traits>(args_)) {
      change_queries<Traits>(args_, places_of_rows(), warpgroup_);
    }
    lane_.queries.load(places_of_rows());
    // Tiles of other rows are passed on unread: of those behind this warpgroup's diagonal first.
    pass_tiles(planned, last, uniform(of_block.last));
    if (any_keys) {
      k_place_.wait_full(barriers_of_k());
      prim::cuda::begin_products();
      multiply_keys();
      int tile = last - 1;
      if constexpr (Traits::walks_tiles) {
        lane_.walk = {};
        tile = lane_.walk.before(planned, warpgroup_, last, first);
      }
      read_rows(args_, hooks_, planned, warpgroup_, lane_);
      typename mods::biases ahead;
      mods(args_, hooks_, planned, lane_, warpgroup_).ask(tile, ahead);
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(lane_.scores);
      if (Traits::frees_queries_early && tile == first) release(barriers_of_q(), q_place());
      release_keys();
      if constexpr (Traits::codes_of_heads) set_scale(planned, lane_);
      bool hides = tile >= full_last || tile < full_first, begins = hides;
      look_up_listed(planned, tile, hides, begins);
      const bool uncapped = modify_scores(planned, tile, hides, ahead, false);
      if (hides) hide_scores(planned, tile);
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
      wait_beside_products(tile > first);
      if (!Traits::codes_of_heads && args_.clears_values) {
        if constexpr (Traits::waits_late) v_place_.wait_full(barriers_of_v());
        clear_missing_values<Traits>(
            prim::cuda::shared_address(&shared_.v[v_place_.stage()]),
            planned.work.k_len - keys_of_tile(planned, tile) * Traits::block_kv, warpgroup_);
      }
      for (--tile; tile >= first; --tile) {
        // The last keys that a row sees may end with the first tile that all see.
        const bool begins = tile + 1 >= full_last;
        if constexpr (Traits::walks_tiles) {
          tile = lane_.walk.before(planned, warpgroup_, tile + 1, first);
          if (tile < first) break;
        } else if constexpr (Traits::classifies) {
          tile = shown_before(planned, tile + 1, first);
          if (tile < first) break;
        }
        next_tile(planned, tile, tile >= full_last || tile < full_first, begins, tile != first);
      }
    }
    if constexpr (!Traits::stores_boxes || Traits::has_out_place) {
      if (!Traits::frees_queries_early || !any_keys) release(barriers_of_q(), q_place());
    }
    if (any_keys) {
      prim::cuda::keep_in_place(lane_.weights);
      prim::cuda::keep_in_place(lane_.out);
      if constexpr (Traits::waits_late) v_place_.wait_full(barriers_of_v());
      prim::cuda::begin_products();
      multiply_values();
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(lane_.out);
      release_values();
    }
    pass_tiles(planned, uniform(of_block.first), first);
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

  /// Whether warpgroups are shown the same of the tiles that both go over.
  static __device__ __forceinline__ bool shows_alike(const planned_tile<Traits>& planned) {
    if constexpr (Traits::whole_tiles) return !planned.differ;
    return true;
  }
  /// Where they are not, what `attend` wants to know of a tile, which may be of the other's alone.
  __device__ __forceinline__ void look_up_listed(const planned_tile<Traits>& planned, int tile,
                                                 bool& hides, bool& begins) const {
    if constexpr (Traits::whole_tiles) {
      if (!begins || shows_alike(planned)) return;
      const int full_last = planned.tiles[warpgroup_].full_last;
      begins = tile + 1 >= full_last;
      hides = tile >= full_last || planned.hides_from(warpgroup_, planned.listed[tile]);
    }
  }

  /// Products with the keys of a tile and with the values of the one before, together; the softmax
  /// of the first under the second. `hides`: rows do not see all of the keys; `begins`: they may
  /// have seen none before; `goes_on`: waits_late: there is a further tile.
  __device__ __forceinline__ void next_tile(const planned_tile<Traits>& planned, int tile,
                                            bool hides, bool begins, bool goes_on) {
    if constexpr (!Traits::waits_late) k_place_.wait_full(barriers_of_k());
    prim::cuda::keep_in_place(lane_.weights);
    prim::cuda::keep_in_place(lane_.out);
    prim::cuda::begin_products();
    multiply_keys();
    if constexpr (Traits::waits_late) {
      v_place_.wait_full(barriers_of_v());
      prim::cuda::begin_products();
    }
    multiply_values();
    look_up_listed(planned, tile, hides, begins);  // beside products, so that nobody waits for it
    kept_weights<Traits> kept;
    if constexpr (!Traits::draws_late) kept.draw(args_, planned, lane_, warpgroup_, tile);
    typename mods::biases ahead;
    mods(args_, hooks_, planned, lane_, warpgroup_).ask(tile, ahead);
    prim::cuda::wait_products<1>();
    prim::cuda::keep_in_place(lane_.scores);
    const bool follows =
        (hides && !Traits::trusts_left_edge) || begins || args_.follows_maximum || lane_.looks;
    // Where nobody looks for maxima products may have to be made again.
    const bool keeps_keys = Traits::trusts_reference && !Traits::divides_weights && !follows;
    const std::uint32_t keys = prim::cuda::shared_address(&shared_.k[k_place_.stage()]);
    if (Traits::frees_queries_early && !goes_on) release(barriers_of_q(), q_place());
    if (!keeps_keys) release_keys();
    if constexpr (Traits::codes_of_heads) set_scale(planned, lane_);
    const bool paired = weighs_pairs(lane_, follows);
    const bool uncapped = modify_scores(planned, tile, hides, ahead, paired);
    if (hides) hide_scores(planned, tile);
    const bool moved = Traits::trusts_reference
                           ? weigh_by_reference(
                                 lane_, args_, follows, places_of_rows(), keys, factors(),
                                 [&] {
                                   if (hides) hide_scores(planned, tile);
                                 },
                                 [&] { kept.draw(args_, planned, lane_, warpgroup_, tile); })
                           : follow_maximum(lane_, args_, uncapped, factors());
    if constexpr (Traits::drops && !Traits::begins_draws) {
      // Of three warpgroups: calls without dropout do not look at bits, with it both are one block.
      if (args_.call.dropout) {
        exponentiate(lane_, args_, uncapped, lane_.sum);
        kept.apply(lane_);
      } else {
        exponentiate(lane_, args_, uncapped, lane_.sum);
      }
    } else {
      if constexpr (!Traits::trusts_reference) exponentiate(lane_, args_, uncapped, lane_.sum);
      if (keeps_keys) release_keys();
      kept.apply(lane_);
    }
    prim::cuda::keep_in_place(lane_.scores);
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
    round_weights(lane_);
  }

  /// scores = Q K^T
  __device__ __forceinline__ void multiply_keys() {
    const std::uint64_t a = prim::cuda::describe_panels(
        places_of_rows() + prim::cuda::unknown_zero(k_place_.stage()), 16);
    const std::uint64_t b =
        prim::cuda::describe_panels(prim::cuda::shared_address(&shared_.k[k_place_.stage()]), 16);
    multiply_scores(lane_, a, b);
    prim::cuda::commit_products();
  }

  /// out += weights V
  __device__ __forceinline__ void multiply_values() {
    const std::uint32_t values = prim::cuda::shared_address(&shared_.v[v_place_.stage()]);
    const std::uint64_t b = Traits::codes_of_heads
                                ? prim::cuda::describe_narrow_panel(values)
                                : prim::cuda::describe_panels(values, Traits::kv_panel_bytes);
    constexpr int step_bytes = Traits::codes_of_heads
                                   ? Traits::v_head_dim * prim::cuda::narrow_row_bytes
                                   : 16 * prim::cuda::panel_row_bytes;
#pragma unroll
    for (int step = 0; step < Traits::block_kv / Traits::step_columns; ++step) {
      const prim::cuda::warpgroup_a a{{lane_.weights[4 * step], lane_.weights[4 * step + 1],
                                       lane_.weights[4 * step + 2], lane_.weights[4 * step + 3]}};
      values_product::sums_of(lane_.out, a, b + prim::cuda::panel_step(step * step_bytes));
    }
    prim::cuda::commit_products();
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

  __device__ __forceinline__ void hide_scores(const planned_tile<Traits>& planned, int tile) {
    if constexpr (!mods::hides_outside) {
      hide_outside(planned, warpgroup_, keys_of_tile(planned, tile), lane_);
    }
  }

  /// Tiles of keys, from the last to the first, that none of this warpgroup's rows sees. They must
  /// have arrived, or a release would count for the tile before.
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
    return shared_.factors + warpgroup_ * 32 + prim::cuda::thread_index() % 128 / 4;
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
  const int warpgroup_;
  lane_tile<Traits> lane_;
  prim::cuda::ring_place<2> tile_place_;
  prim::cuda::ring_place<Traits::kv_stages> k_place_;  ///< of values too, until they have arrived
  prim::cuda::ring_place<Traits::kv_stages> v_place_;  ///< of values in use
};

}  // namespace tessera::kernels::attention::sm90
