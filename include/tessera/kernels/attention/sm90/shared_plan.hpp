// What a block of the wgmma kernels has in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/kernels/attention/sm90/bias_tiles.hpp>
#include <tessera/kernels/attention/sm90/key_tiles.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// Where finished rows lie that are not to lie in the place of their queries.
template <class Traits>
struct out_place {
  alignas(1024) unsigned char rows[Traits::out_bytes];
};
struct no_out_place {};

/// Finished rows on their way to the warp that has them written (row_store.hpp).
template <class Traits>
struct row_signals {
  /// Full once a warpgroup is done with its rows of a work tile, of whose place they are.
  std::uint64_t are_done[Traits::consumers][2];
  std::uint64_t have_left;               ///< those of a work tile, the place of finished rows
  bool wait[2][Traits::consumer_warps];  ///< to be written: all of a warp's

  __device__ __forceinline__ void init() {
    prim::cuda::init_barrier(prim::cuda::shared_address(&have_left), 1);
    for (auto& places : are_done) {
      for (std::uint64_t& done : places) {
        prim::cuda::init_barrier(prim::cuda::shared_address(&done), warps_of_warpgroup);
      }
    }
  }
};
struct no_row_signals {
  __device__ __forceinline__ void init() {}
};

/// Shared memory of a block.
template <class Traits>
struct shared_plan {
  alignas(1024) unsigned char q[Traits::q_stages][Traits::q_bytes];
  alignas(1024) unsigned char k[Traits::kv_stages][Traits::k_bytes];
  alignas(1024) unsigned char v[Traits::kv_stages][Traits::v_bytes];
  [[no_unique_address]] std::conditional_t<Traits::has_out_place, out_place<Traits>, no_out_place>
      out;
  planned_tile<Traits> tile[2];
  prim::cuda::ring_barriers<2> of_tile;
  std::uint64_t of_work[2];   ///< full once the producer may bring the tile
  std::uint64_t next_wanted;  ///< the producer is about to end a tile
  [[no_unique_address]] std::conditional_t<Traits::whole_tiles, tile_order, own_order> order;
  float2 factors[Traits::block_q / 2];   ///< of rows whose references have moved, two a quad
  bool is_last_part[Traits::consumers];  ///< all other parts of a warpgroup's rows were there
  [[no_unique_address]] std::conditional_t<Traits::stores_boxes, row_signals<Traits>,
                                           no_row_signals>
      rows;
  prim::cuda::ring_barriers<Traits::q_stages> of_q;
  prim::cuda::ring_barriers<Traits::kv_stages> of_k;
  prim::cuda::ring_barriers<Traits::kv_stages> of_v;
  [[no_unique_address]] std::conditional_t<
      Traits::brings_biases, prim::cuda::ring_barriers<Traits::kv_stages>, no_bias_places>
      of_biases;
  [[no_unique_address]] std::conditional_t<Traits::brings_biases, bias_places<Traits>,
                                           no_bias_places>
      biases;  ///< the last

  /// By one thread.
  __device__ __forceinline__ void init_barriers() {
    of_tile.init(prim::cuda::warp_size,
                 Traits::consumer_warps + 1 + (Traits::stores_boxes ? 1 : 0));
    // Of queries in whose place rows leave, the one who has them written.
    of_q.init(1, Traits::stores_boxes && !Traits::has_out_place ? 1 : Traits::consumer_warps);
    rows.init();
    of_k.init(1, Traits::consumer_warps);
    of_v.init(1, Traits::consumer_warps);
    if constexpr (Traits::brings_biases) of_biases.init(1, Traits::consumer_warps);
    for (std::uint64_t& known : of_work) {
      prim::cuda::init_barrier(prim::cuda::shared_address(&known), 1);
    }
    prim::cuda::init_barrier(prim::cuda::shared_address(&next_wanted), 1);
    if constexpr (Traits::whole_tiles) {
      prim::cuda::init_barrier(prim::cuda::shared_address(&order.is_there), 1);
    }
  }
};

/// Where the queries of a warpgroup lie.
template <class Traits>
__device__ __forceinline__ std::uint32_t place_of_queries(shared_plan<Traits>& shared,
                                                          std::uint32_t stage, int warpgroup) {
  return prim::cuda::shared_address(&shared.q[stage]) +
         warpgroup * rows_of_warpgroup * prim::cuda::panel_row_bytes;
}

/// The biases of the tile of keys that has a place.
template <class Traits>
__device__ __forceinline__ bias_panel<Traits::kv_stages> biases_of_keys(
    shared_plan<Traits>& shared, const prim::cuda::ring_place<Traits::kv_stages>& place) {
  if constexpr (Traits::brings_biases) {
    return {prim::cuda::shared_address(&shared.of_biases),
            prim::cuda::shared_address(&shared.biases.panels[place.stage()]), place};
  } else {
    return {0, 0, place};
  }
}

/// Where its rows lie once they are finished.
template <class Traits>
__device__ __forceinline__ std::uint32_t place_of_rows(shared_plan<Traits>& shared,
                                                       std::uint32_t stage, int warpgroup) {
  if constexpr (Traits::has_out_place) {
    return prim::cuda::shared_address(&shared.out) +
           warpgroup * rows_of_warpgroup * prim::cuda::panel_row_bytes;
  } else {
    return place_of_queries(shared, stage, warpgroup);
  }
}

template <class Traits>
constexpr bool shared_plan_fits = sizeof(shared_plan<Traits>) <=
                                      static_cast<std::size_t>(Traits::shared_bytes) &&
                                  Traits::shared_bytes <= most_shared_memory_bytes_sm90;

}  // namespace tessera::kernels::attention::sm90
