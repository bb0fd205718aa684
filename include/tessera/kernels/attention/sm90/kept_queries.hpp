// Queries that stay in the registers of a warpgroup whose sums and scores leave room. Products with
// 64 keys read as much of the queries as of the keys from shared memory, all of the 128 bytes of a
// cycle that it has; those of the last steps then read keys alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention::sm90 {

/// Steps of 16 columns, the last of a product with keys, whose queries are kept: in rows of two
/// warpgroups that do nothing to scores. More than six gain nothing (bench/results).
template <class Traits>
inline constexpr int kept_query_steps = [] {
  if (Traits::consumers != 2 || Traits::codes_of_heads || Traits::modifies || Traits::drops ||
      Traits::adds_distances || Traits::whole_tiles || Traits::paged || Traits::reads_runs ||
      Traits::tail_columns > 0) {
    return 0;
  }
  const int taken = Traits::v_columns / 2 + Traits::block_kv / 2 + Traits::weight_words;
  return std::clamp((Traits::consumer_registers - 28 - taken) / 4, 0, 6);
}();

template <class Traits>
class kept_queries {
 public:
  static constexpr int steps = kept_query_steps<Traits>;
  /// The first product whose queries are kept.
  static constexpr int first = Traits::qk_steps - steps;
  static_assert(first > 0);

  /// `rows`: the panels of the warpgroup's rows. By all of its warps, each its own rows.
  __device__ __forceinline__ void load(std::uint32_t rows) {
    const int thread = static_cast<int>(prim::cuda::thread_index()) % prim::cuda::warpgroup_size;
    const int lane = thread % prim::cuda::warp_size;
    // Lane l gives the address of row l % 16 of eight columns, or of the next eight.
    const int line = thread / prim::cuda::warp_size * 16 + lane % 16;
    rows += line * prim::cuda::panel_row_bytes;
#pragma unroll
    for (int n = 0; n < steps; ++n) {
      const int chunk = (first + n) % 4 * 2 + lane / 16;
      prim::cuda::load_matrices(
          words_[n], rows + (first + n) / 4 * Traits::q_panel_bytes + (chunk ^ line % 8) * 16);
      prim::cuda::keep_in_place(words_[n]);
    }
  }

  __device__ __forceinline__ prim::cuda::warpgroup_a of_step(int step) const {
    const std::uint32_t(&word)[4] = words_[step - first];
    return {{word[0], word[1], word[2], word[3]}};
  }

 private:
  std::uint32_t words_[steps > 0 ? steps : 1][4];
};

}  // namespace tessera::kernels::attention::sm90
