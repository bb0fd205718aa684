// What a warpgroup changes of tiles in shared memory before products read them.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

/// What the warpgroup wrote to shared memory is there for its products.
__device__ __forceinline__ void share_writes() {
  prim::cuda::show_writes_to_async_units();
  prim::cuda::wait_for_threads(prim::cuda::warpgroup_index(), prim::cuda::warpgroup_size);
}

template <class Traits>
__device__ __forceinline__ bool changes_queries(const launch_args& args) {
  return args.negative_scale || (Traits::paged && args.call.q_divisor != 1.0f);
}

/// Two elements of q, divided where that is asked for, and their signs turned.
template <class Traits>
__device__ __forceinline__ std::uint32_t changed_word(const launch_args& args, std::uint32_t word) {
  if constexpr (Traits::paged) {
    using words = typename Traits::words;
    const auto part = [&](std::uint32_t bits) {
      return divided<typename Traits::element>(words::unpack(static_cast<std::uint16_t>(bits)),
                                               args.call.q_divisor);
    };
    word = words::pack(part(word), part(word >> 16));
  }
  return args.negative_scale ? word ^ 0x80008000u : word;
}

/// Changes the queries of the warpgroup's rows, whose panels begin at `rows`.
template <class Traits>
__device__ __forceinline__ void change_queries(const launch_args& args, std::uint32_t rows) {
  const int thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
  constexpr int chunks = rows_of_warpgroup * prim::cuda::panel_row_bytes / 16;
#pragma unroll 1
  for (int i = thread; i < Traits::qk_panels * chunks; i += prim::cuda::warpgroup_size) {
    const std::uint32_t at = rows + i / chunks * Traits::q_panel_bytes + i % chunks * 16;
    std::uint32_t four[4];
    prim::cuda::load_shared_16(four, at);
    for (std::uint32_t& word : four) word = changed_word<Traits>(args, word);
    prim::cuda::store_shared_16(at, four);
  }
  share_writes();
}

/// Values behind the first `there` of a tile, which are behind the end of a sequence, become 0:
/// they may be anything, and 0 times NaN is NaN. Every warpgroup writes the zeros that it needs;
/// those of others are the same.
template <class Traits>
__device__ __forceinline__ void clear_missing_values(std::uint32_t values, int there) {
  const int thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
  if (there >= Traits::block_kv) return;
  const int chunks = (Traits::block_kv - there) * 8;
#pragma unroll 1
  for (int i = thread; i < Traits::v_panels * chunks; i += prim::cuda::warpgroup_size) {
    prim::cuda::store_shared_16(values + i / chunks * Traits::kv_panel_bytes +
                                    there * prim::cuda::panel_row_bytes + i % chunks * 16,
                                {0, 0, 0, 0});
  }
  share_writes();
}

}  // namespace tessera::kernels::attention::sm90
