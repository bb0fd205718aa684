// The warp of a block that keeps tiles of queries, keys and values on their way to shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/pages.hpp>
#include <tessera/kernels/attention/sm90/plan_tile.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/values_across.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>

namespace tessera::kernels::attention::sm90 {

/// Tokens that the copy unit cannot address (strides that are negative, say), copied by the warp: a
/// panel after the other, rows that `row_of` has no address for as zeros.
template <int Panels, class RowOf>
__device__ __forceinline__ void copy_rows(std::uint32_t to, int rows, int panel_bytes, int width,
                                          const RowOf& row_of) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
#pragma unroll 1
  for (int i = lane; i < rows * Panels * 8; i += prim::cuda::warp_size) {
    const int row = i / (Panels * 8);
    const int chunk = i % (Panels * 8);
    const std::uint16_t* from = chunk * 8 < width ? row_of(row) : nullptr;
    const uint4 four = from != nullptr ? *reinterpret_cast<const uint4*>(from + chunk * 8)
                                       : make_uint4(0, 0, 0, 0);
    const std::uint32_t at =
        to + chunk / 8 * panel_bytes + row * prim::cuda::panel_row_bytes + ((chunk ^ row) % 8) * 16;
    prim::cuda::store_shared_16(at, {four.x, four.y, four.z, four.w});
  }
  prim::cuda::show_writes_to_async_units();
  __syncwarp();
}

/// The next work tile is wanted this many tiles of keys before the last of the one before is
/// brought. Wanted earlier, tiles that were short for others are missed; later, it is waited for.
/// What hides whole tiles takes longer to plan with.
template <class Traits>
inline constexpr int tiles_ahead = Traits::classifies || Traits::reads_runs ? 4 : 1;

template <class Traits>
class producer {
  using plan = shared_plan<Traits>;
  using kv_place = prim::cuda::ring_place<Traits::kv_stages>;

 public:
  __device__ __forceinline__ producer(const launch_args& args, const tensor_maps& maps,
                                      plan& shared)
      : args_(args), maps_(maps), shared_(shared) {}

  /// All tiles of this block, by one warp.
  __device__ __forceinline__ void run() {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_tile);
    for (;; tile_place_.advance()) {
      tile_place_.wait_full(prim::cuda::shared_address(&shared_.of_work));
      // The tile is read from shared memory when it is needed: this warp has few registers.
      const work_tile& work = shared_.tile[tile_place_.stage()].work;
      const tile_range& tiles = shared_.tile[tile_place_.stage()].tiles[Traits::consumers];
      if (work.sequence < 0) return;
      bring_queries(work);
      const int late = late_tile(tiles);
      const auto key_of = [&](int tile) {
        return keys_of_tile(shared_.tile[tile_place_.stage()], tile) * Traits::block_kv;
      };
      // Values trail keys by a tile: products with the next keys run before those with values.
      if constexpr (Traits::from_first) {
        for (int tile = tiles.first; tile <= tiles.last; ++tile) {
          if (tile == late && lane() == 0) {
            prim::cuda::arrive(prim::cuda::shared_address(&shared_.next_wanted));
          }
          if (tile < tiles.last) bring_keys(work, key_of(tile));
          if (tile > tiles.first) bring_values(work, key_of(tile - 1));
        }
        __syncwarp();
        if (lane() == 0) tile_place_.release(barriers);
        continue;
      }
      int before = tiles.last;  // the tile whose keys are under way; there is none yet
      for (int tile = tiles.last; tile >= tiles.first; --tile) {
        if (tile == late && lane() == 0) {
          prim::cuda::arrive(prim::cuda::shared_address(&shared_.next_wanted));
        }
        if (tile > tiles.first) {
          if constexpr (Traits::classifies) {
            const int next = next_step(tile, late);
            if (next < tile) {
              tile = next + 1;
              continue;
            }
          }
          bring_keys(work, key_of(tile - 1));
        }
        if (before < tiles.last) bring_values(work, key_of(before));
        before = tile - 1;
      }
      __syncwarp();
      if (lane() == 0) tile_place_.release(barriers);
    }
  }

 private:
  /// Once this tile of keys is brought the next work tile is wanted.
  __device__ __forceinline__ int late_tile(const tile_range& tiles) const {
    if constexpr (Traits::walks_tiles || Traits::whole_tiles) {
      return shared_.tile[tile_place_.stage()].late;
    }
    if constexpr (Traits::from_first) return max(tiles.first, tiles.last - tiles_ahead<Traits>);
    return min(tiles.last, tiles.first + tiles_ahead<Traits>);
  }
  /// Where the loop over tiles goes on that has come to `tile`: there, if the tile before it is
  /// shown, else behind the next that is, or where the next work tile is wanted.
  __device__ __forceinline__ int next_step(int tile, int late) const {
    const planned_tile<Traits>& planned = shared_.tile[tile_place_.stage()];
    const int first = planned.tiles[Traits::consumers].first;
    const int next = max(shown_before(planned, tile, first) + 1, first);
    return tile > late ? max(next, late) : next;
  }
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  }

  /// Columns are copied as elements of 16 bits, be they one or two.
  static constexpr int pairs_in(int columns) {
    return columns * static_cast<int>(sizeof(typename Traits::stored)) / 2;
  }
  static __device__ __forceinline__ const std::uint16_t* pairs_of_row(const void* data,
                                                                      const row_strides& strides,
                                                                      int entry, std::int64_t row,
                                                                      int head) {
    return reinterpret_cast<const std::uint16_t*>(
        token_row<typename Traits::stored>(data, strides, entry, row, head));
  }

  /// Asks for the boxes of a tile of tokens; `at`: head, token, entry; `fills`: it has all rows of
  /// its panels. By one thread.
  template <int HeadDim>
  static __device__ __forceinline__ void copy_tile(std::uint32_t to, int panel_bytes,
                                                   const CUtensorMap& map, std::uint32_t full,
                                                   const int (&at)[3], prim::cuda::cache_hint hint,
                                                   bool fills = true) {
    if (Traits::joins_panels_of(HeadDim) && fills) {
      prim::cuda::copy_panels(to, map, full, at, hint);
      return;
    }
#pragma unroll
    for (int panel = 0; panel < Traits::panels_of(HeadDim); ++panel) {
      prim::cuda::copy_box(to + panel * panel_bytes, map, full,
                           {panel * prim::cuda::panel_columns, at[0], at[1], at[2]}, hint);
    }
  }

  __device__ __forceinline__ void bring_queries(const work_tile& work) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_q);
    const std::uint32_t to = prim::cuda::shared_address(&shared_.q[q_place_.stage()]);
    const std::uint32_t full = q_place_.full(barriers);
    const int token = work.q_begin + work.first_query;
    const int first_head = work.first_head;
    const int entry = entry_of_rows<Traits>(args_, work);
    q_place_.wait_empty(barriers);
    if (args_.boxed_q) {
      if (lane() == 0) {
        const int rows = args_.tokens_of_tile * static_cast<int>(args_.heads_of_tile.value);
        prim::cuda::arrive_expecting(full, Traits::qk_panels * static_cast<std::uint32_t>(rows) *
                                               prim::cuda::panel_row_bytes);
        copy_tile<Traits::head_dim>(to, Traits::q_panel_bytes, maps_.q, full,
                                    {first_head, token, entry}, prim::cuda::cache_hint::evict_first,
                                    rows == Traits::block_q);
      }
    } else {
      copy_rows<Traits::qk_panels>(to, Traits::block_q, Traits::q_panel_bytes,
                                   pairs_in(Traits::head_dim),
                                   [&](int row) -> const std::uint16_t* {
                                     if (row >= work.used) return nullptr;
                                     const query_row at = query_of(args_, work, row);
                                     return pairs_of_row(args_.call.q, args_.call.q_strides, entry,
                                                         work.q_begin + at.query, at.head);
                                   });
      if (lane() == 0) prim::cuda::arrive(full);
    }
    q_place_.advance();
  }

  __device__ __forceinline__ void bring_keys(const work_tile& work, int key0) {
    if constexpr (Traits::tail_columns > 0) {
      bring_keys_of_parts(work, key0);
      return;
    }
    const kv_place place = k_place_;
    bring<Traits::head_dim>(work, key0, prim::cuda::shared_address(&shared_.of_k),
                            prim::cuda::shared_address(&shared_.k[k_place_.stage()]), k_place_,
                            args_.boxed_k, maps_.k, args_.call.k, args_.call.k_strides);
    bring_biases(work, key0, place);
  }
  __device__ __forceinline__ void bring_values(const work_tile& work, int key0) {
    if constexpr (Traits::codes_of_heads) {
      bring_values_across(work, key0);
      return;
    }
    bring<Traits::v_head_dim>(work, key0, prim::cuda::shared_address(&shared_.of_v),
                              prim::cuda::shared_address(&shared_.v[v_place_.stage()]), v_place_,
                              args_.boxed_v, maps_.v, args_.call.v, args_.call.v_strides);
  }

  /// The biases of a tile of keys, in the place that has its number.
  __device__ __forceinline__ void bring_biases(const work_tile& work, int key0,
                                               const kv_place& place) const {
    if constexpr (Traits::brings_biases) {
      if (!holds_biases<Traits>(args_)) return;
      const boxed_bias& bias = args_.bias;
      const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_biases);
      const std::uint32_t to = prim::cuda::shared_address(&shared_.biases.panels[place.stage()]);
      const int at[3] = {work.first_head * bias.of_head, work.first_query * bias.of_token,
                         work.sequence * bias.of_entry};
      place.wait_empty(barriers);
      if (lane() != 0) return;
      prim::cuda::arrive_expecting(place.full(barriers), bias.bytes);
      prim::cuda::copy_box(to, maps_.beside_k, place.full(barriers), {key0, at[0], at[1], at[2]},
                           prim::cuda::cache_hint::evict_normal);
    }
  }

  /// A tile of keys whose last columns lie apart.
  __device__ __forceinline__ void bring_keys_of_parts(const work_tile& work, int key0) {
    constexpr int panels = Traits::qk_panels - Traits::tail_panels;
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_k);
    const std::uint32_t to = prim::cuda::shared_address(&shared_.k[k_place_.stage()]);
    const std::uint32_t full = k_place_.full(barriers);
    const std::uint32_t to_tail = to + panels * Traits::kv_panel_bytes;
    const key_tail& tail = args_.call.k_tail;
    const int token = work.k_begin + key0;
    const int entry = entry_of(args_.call, work);
    k_place_.wait_empty(barriers);
    if (args_.boxed_k) {
      if (lane() == 0) {
        prim::cuda::arrive_expecting(full, Traits::k_bytes);
        copy_tile<Traits::head_dim - Traits::tail_columns>(to, Traits::kv_panel_bytes, maps_.k,
                                                           full, {work.kv_head, token, entry},
                                                           prim::cuda::cache_hint::evict_last);
        copy_tile<Traits::tail_columns>(to_tail, Traits::kv_panel_bytes, maps_.beside_k, full,
                                        {tail.strides.head == 0 ? 0 : work.kv_head, token, entry},
                                        prim::cuda::cache_hint::evict_last);
      }
    } else {
      copy_keys<panels>(work, key0, to, args_.call.k, args_.call.k_strides,
                        pairs_in(Traits::head_dim - Traits::tail_columns));
      copy_keys<Traits::tail_panels>(work, key0, to_tail, tail.data, tail.strides,
                                     pairs_in(tail.columns));
      if (lane() == 0) prim::cuda::arrive(full);
    }
    k_place_.advance();
  }

  /// A tile of values as values_across.hpp has left it.
  __device__ __forceinline__ void bring_values_across(const work_tile& work, int key0) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_v);
    const std::uint32_t full = v_place_.full(barriers);
    v_place_.wait_empty(barriers);
    if (lane() == 0) {
      prim::cuda::arrive_expecting(full, Traits::v_bytes);
      prim::cuda::copy_bytes(
          prim::cuda::shared_address(&shared_.v[v_place_.stage()]),
          values_across_at<Traits>(args_, work.sequence, work.k_begin, key0, work.kv_head),
          Traits::v_bytes, full, prim::cuda::cache_hint::evict_last);
    }
    v_place_.advance();
  }

  /// The boxes of a tile of keys or values in pages, a lane each; those behind the last key are its
  /// own again. `place` is that of the lane's first token.
  template <int Panels>
  __device__ __forceinline__ void bring_pages(const token_place& place, int kv_head,
                                              std::uint32_t to, std::uint32_t full,
                                              const CUtensorMap& map) {
    if (lane() == 0) prim::cuda::arrive_expecting(full, Panels * Traits::kv_panel_bytes);
    __syncwarp();
    if (lane() >= Traits::block_kv / box_of_page) return;
    to += lane() * box_of_page * prim::cuda::panel_row_bytes;
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel) {
      prim::cuda::copy_box(to + panel * Traits::kv_panel_bytes, map, full,
                           {panel * prim::cuda::panel_columns, kv_head, place.slot, place.page},
                           prim::cuda::cache_hint::evict_last);
    }
  }

  /// A tile of keys or values. Rows behind the sequence are those of others, or zeros.
  template <int HeadDim, int Stages>
  __device__ __forceinline__ void bring(const work_tile& work, int key0, std::uint32_t barriers,
                                        std::uint32_t to, prim::cuda::ring_place<Stages>& place,
                                        bool boxed, const CUtensorMap& map, const void* data,
                                        const row_strides& strides) {
    constexpr int panels = Traits::panels_of(HeadDim);
    constexpr int width = pairs_in(HeadDim);
    const std::uint32_t full = place.full(barriers);
    if constexpr (Traits::paged) {
      if (boxed) {
        // Looked up while the place is still in use.
        const int token = min(key0 + lane() * box_of_page, work.k_len - 1);
        const token_place at = place_of(args_, work.sequence, token / box_of_page * box_of_page);
        place.wait_empty(barriers);
        bring_pages<panels>(at, work.kv_head, to, full, map);
        place.advance();
        return;
      }
    }
    // Read before the wait, behind which consumers wait for the copy.
    const int kv_head = work.kv_head;
    const int token = work.k_begin + key0;
    const int entry = entry_of(args_.call, work);
    place.wait_empty(barriers);
    if (boxed) {
      if (lane() == 0) {
        prim::cuda::arrive_expecting(full, panels * Traits::kv_panel_bytes);
        copy_tile<HeadDim>(to, Traits::kv_panel_bytes, map, full, {kv_head, token, entry},
                           prim::cuda::cache_hint::evict_last);
      }
    } else {
      copy_keys<panels>(work, key0, to, data, strides, width);
      if (lane() == 0) prim::cuda::arrive(full);
    }
    place.advance();
  }

  /// The same by the warp, of rows that the copy unit cannot address.
  template <int Panels>
  __device__ __forceinline__ void copy_keys(const work_tile& work, int key0, std::uint32_t to,
                                            const void* data, const row_strides& strides,
                                            int width) const {
    copy_rows<Panels>(to, Traits::block_kv, Traits::kv_panel_bytes, width,
                      [&](int row) -> const std::uint16_t* {
                        if (key0 + row >= work.k_len) return nullptr;
                        return reinterpret_cast<const std::uint16_t*>(
                            key_row<Traits>(args_, work, data, strides, key0 + row));
                      });
  }

  const launch_args& args_;
  const tensor_maps& maps_;
  plan& shared_;
  prim::cuda::ring_place<2> tile_place_;
  prim::cuda::ring_place<Traits::q_stages> q_place_;
  kv_place k_place_, v_place_;
};

}  // namespace tessera::kernels::attention::sm90
