// Rows of queries and of latents in pages on their way to panels in shared memory, by cp.async: the
// pages of a sequence lie anywhere, and have any number of slots.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// Where a lane's row lies; a warp copies the rows of its lanes.
struct lane_row {
  const std::uint16_t* latent = nullptr;
  const std::uint16_t* rope = nullptr;
  bool held = false;  ///< else it is zeros; the addresses may be read all the same
};

/// Rows of two tensors, with so many 16-byte chunks each.
class row_copies {
 public:
  __device__ __forceinline__ row_copies(const latent_attention_kernel_args& args,
                                        const latent_rows& latents, const latent_rows& ropes)
      : latents_(latents),
        ropes_(ropes),
        latent_chunks_(static_cast<unsigned>(args.latent / 8)),
        rope_chunks_(static_cast<unsigned>(args.rope / 8)) {}

  __device__ __forceinline__ lane_row row_at(std::int64_t latent, std::int64_t rope,
                                             bool held) const {
    return {static_cast<const std::uint16_t*>(latents_.data) + (held ? latent : 0),
            static_cast<const std::uint16_t*>(ropes_.data) + (held ? rope : 0), held};
  }

  /// Half of the latent columns of `Rows` rows from row `first` of the tile at `to` on: those of
  /// the lanes from 0 on.
  template <int Rows>
  __device__ __forceinline__ void start_columns(std::uint32_t to, std::uint32_t first, int half,
                                                const lane_row& row) const {
    const std::uint32_t chunk = static_cast<unsigned>(half) * 32 + lane();
    const bool there = chunk < latent_chunks_;
    const std::uint32_t panel = to + chunk / 8 * panel_bytes + first * row_bytes;
    const unsigned held = __ballot_sync(prim::cuda::all_lanes, row.held);
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      // `first` is a multiple of 8.
      const auto r = static_cast<unsigned>(i);
      prim::cuda::copy_async_16_or_zeros(panel + r * row_bytes + (chunk ^ r) % 8 * 16,
                                         of_lane(row.latent, i) + (there ? chunk * 8 : 0),
                                         there && (held >> i & 1u) != 0);
    }
  }

  /// Rope parts of the same rows, four at a time.
  template <int Rows>
  __device__ __forceinline__ void start_ropes(std::uint32_t to, std::uint32_t first,
                                              const lane_row& row) const {
    const std::uint32_t chunk = lane() % 8;
    const bool there = chunk < rope_chunks_;
    const unsigned held = __ballot_sync(prim::cuda::all_lanes, row.held);
#pragma unroll
    for (int i = 0; i < Rows / 4; ++i) {
      const std::uint32_t r = static_cast<unsigned>(i) * 4 + lane() / 8;
      const auto* const from = of_lane(row.rope, static_cast<int>(r));
      prim::cuda::copy_async_16_or_zeros(
          to + chunk_offset(first + r, static_cast<unsigned>(latent_panels) * 8 + chunk),
          from + (there ? chunk * 8 : 0), there && (held >> r & 1u) != 0);
    }
  }

 private:
  static constexpr std::uint32_t row_bytes = prim::cuda::panel_row_bytes;
  static __device__ __forceinline__ std::uint32_t lane() {
    return threadIdx.x % prim::cuda::warp_size;
  }
  static __device__ __forceinline__ const std::uint16_t* of_lane(const std::uint16_t* pointer,
                                                                 int from) {
    return reinterpret_cast<const std::uint16_t*>(
        __shfl_sync(prim::cuda::all_lanes, reinterpret_cast<unsigned long long>(pointer), from));
  }

  const latent_rows& latents_;
  const latent_rows& ropes_;
  std::uint32_t latent_chunks_, rope_chunks_;
};

/// The query rows of a block, by a warpgroup, whose own barrier must follow.
__device__ __forceinline__ void bring_queries(const latent_attention_kernel_args& args,
                                              const sm80::row_block& rows, std::uint32_t to) {
  constexpr int of_warp = block_rows / 4;
  const auto first = threadIdx.x / prim::cuda::warp_size % 4 * of_warp;
  const int r = static_cast<int>(first + threadIdx.x % of_warp);
  const row_copies copies(args, args.q, args.q_pe);
  const bool held = r < rows.count;
  const lane_row row =
      copies.row_at(held ? rows.at(args.q, r) : 0, held ? rows.at(args.q_pe, r) : 0, held);
  copies.start_ropes<of_warp>(to, first, row);
  copies.start_columns<of_warp>(to, first, 0, row);
  copies.start_columns<of_warp>(to, first, 1, row);
  prim::cuda::commit_copies();
  prim::cuda::wait_copies<0>();
  prim::cuda::show_writes_to_async_units();
}

/// Brings tiles of keys, those of every second stage: a pair of warps, each of which has 32 rows.
/// So a tile is told to be there as soon as it is, whatever the other pair waits for.
class tile_bringer {
 public:
  __device__ __forceinline__ tile_bringer(const latent_attention_kernel_args& args,
                                          std::int64_t sequence, int end, absorbed_memory& memory)
      : args_(args),
        copies_(args, args.ckv, args.k_pe),
        numbers_(args.pages.numbers + sequence * args.pages.row),
        end_(end),
        memory_(memory) {}

  /// Tiles from key `first` on.
  __device__ __forceinline__ void run(int first, int tiles) const {
    const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
    const int stage = warp / 2, lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const auto row0 = static_cast<unsigned>(warp % 2 * 32);
    const std::uint32_t to = prim::cuda::shared_address(memory_.keys[stage]);
    const std::uint32_t empty = prim::cuda::shared_address(&memory_.empty[stage]);
    int key = first + stage * tile_keys + static_cast<int>(row0) + lane;
    std::int32_t page = page_of(key);
#pragma unroll 1
    for (int tile = stage; tile < tiles; tile += stages) {
      const lane_row row = row_of(key, page);
      key += stages * tile_keys;
      page = page_of(key);
      prim::cuda::wait_for_phase(empty, phase_of(tile) ^ 1);
      copies_.start_ropes<32>(to, row0, row);
      copies_.start_columns<32>(to, row0, 0, row);
      prim::cuda::commit_copies();
      copies_.start_columns<32>(to, row0, 1, row);
      prim::cuda::commit_copies();
      prim::cuda::wait_copies<1>();
      tell(stage, 0);
      prim::cuda::wait_copies<0>();
      tell(stage, 1);
    }
  }

 private:
  /// Asked for a tile before it is needed.
  __device__ __forceinline__ std::int32_t page_of(int key) const {
    const auto size = static_cast<std::uint32_t>(args_.pages.page_size);
    return key < end_ ? numbers_[static_cast<std::uint32_t>(key) / size] : 0;
  }
  __device__ __forceinline__ lane_row row_of(int key, std::int32_t page) const {
    if (key >= end_) return copies_.row_at(0, 0, false);
    const auto lanes = static_cast<std::uint32_t>(args_.pages.lanes);
    const std::uint32_t slot =
        static_cast<std::uint32_t>(key) % static_cast<std::uint32_t>(args_.pages.page_size);
    const std::int64_t held_page = sm80::clipped(page, args_.pages.page_count - 1);
    return copies_.row_at(args_.ckv.at(held_page, slot / lanes, slot % lanes),
                          args_.k_pe.at(held_page, slot / lanes, slot % lanes), true);
  }
  /// A part of the tile has come, as far as this warp brings it.
  __device__ __forceinline__ void tell(int stage, int part) const {
    prim::cuda::show_writes_to_async_units();
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      prim::cuda::arrive(prim::cuda::shared_address(&memory_.arrived[stage][part]));
    }
  }

  const latent_attention_kernel_args& args_;
  row_copies copies_;
  const std::int32_t* numbers_;
  int end_;
  absorbed_memory& memory_;
};

}  // namespace tessera::kernels::latent_attention::sm90
