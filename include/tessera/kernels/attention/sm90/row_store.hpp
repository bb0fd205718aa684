// The warp that asks the copy unit to write finished rows: warpgroups leave them in shared memory
// and go on with the next work tile.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/box_store.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

template <class Traits>
class row_storer {
 public:
  __device__ __forceinline__ row_storer(const launch_args& args, const tensor_maps& maps,
                                        shared_plan<Traits>& shared)
      : args_(args), maps_(maps), shared_(shared) {}

  /// All tiles of this block, by one warp.
  __device__ __forceinline__ void run() {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_tile);
    for (;; tile_place_.advance()) {
      tile_place_.wait_full(barriers);
      const planned_tile<Traits>& planned = shared_.tile[tile_place_.stage()];
      if (planned.work.sequence < 0) return;
#pragma unroll 1
      for (int n = 0; n < Traits::consumers; ++n) {
        tile_place_.wait_full(prim::cuda::shared_address(&shared_.rows.are_done[n]));
        if (lane() < warps * Traits::out_panels) store(planned.work, n);
      }
      prim::cuda::wait_for_reads_of_stores();
      __syncwarp();
      if (lane() == 0) {
        if constexpr (Traits::has_out_place) {
          prim::cuda::arrive(prim::cuda::shared_address(&shared_.rows.have_left));
        } else {
          tile_place_.release(prim::cuda::shared_address(&shared_.of_q));
        }
        tile_place_.release(barriers);
      }
    }
  }

 private:
  static constexpr int warps = warps_of_warpgroup;
  static_assert(warps * Traits::out_panels <= prim::cuda::warp_size);

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  }

  /// A panel of the rows of a warp, by a lane.
  __device__ __forceinline__ void store(const work_tile& work, int warpgroup) const {
    const int warp = lane() % warps;
    const int panel = lane() / warps;
    if (!shared_.rows.wait[tile_place_.stage()][warpgroup * warps + warp]) return;
    const query_row at = query_of(args_, work, warpgroup * rows_of_warpgroup + warp * rows_of_warp);
    const std::uint32_t rows = place_of_rows(shared_, tile_place_.stage(), warpgroup);
    prim::cuda::store_box(
        maps_.out,
        rows + warp * rows_of_warp * prim::cuda::panel_row_bytes + panel * Traits::q_panel_bytes,
        {panel * prim::cuda::panel_columns, at.head, work.q_begin + at.query,
         entry_of_rows<Traits>(args_, work)});
    prim::cuda::commit_stores();
  }

  const launch_args& args_;
  const tensor_maps& maps_;
  shared_plan<Traits>& shared_;
  prim::cuda::ring_place<2> tile_place_;
};

}  // namespace tessera::kernels::attention::sm90
