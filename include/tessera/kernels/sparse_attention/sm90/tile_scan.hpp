// What the kernel that classifies tiles (attention/sm90/classify.hpp) asks of blocksparse
// attention: a warpgroup's rows against a whole tile of keys at a time, by the thread that has its
// first keys.
#pragma once

#include <tessera/kernels/attention/sm90/classify.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/kernels/sparse_attention/sm80/pair_scores.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::sm90 {

template <kernels::sparse_attention::sm80::says_who_is_seen Pairs>
inline constexpr bool walks_shown_tiles<Pairs> = true;

template <class Kernel, kernels::sparse_attention::sm80::says_who_is_seen Pairs>
class chunk_scan<kernel_traits<Kernel, kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>>> {
  using hooks_type = kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>;
  using traits = kernel_traits<Kernel, hooks_type>;

 public:
  __device__ __forceinline__ chunk_scan(const launch_args& args, const hooks_type& hooks,
                                        const work_tile& work, int warpgroup, int key0)
      : args_(args), hooks_(hooks), work_(work), warpgroup_(warpgroup), key0_(key0) {}

  __device__ __forceinline__ void run() {
    const bool is_first = key0_ % traits::block_kv == 0;
    some = is_first && key0_ < work_.k_len;
    if (!some) return;
    const prim::tile_visibility seen =
        seen_of_tile<traits>(args_, hooks_, work_, warpgroup_ * rows_of_warpgroup,
                             rows_of_warpgroup, key0_ / traits::block_kv);
    some = seen != prim::tile_visibility::skip;
    whole = seen == prim::tile_visibility::full;
  }

  bool some = true, whole = true;

 private:
  const launch_args& args_;
  const hooks_type& hooks_;
  const work_tile& work_;
  const int warpgroup_, key0_;
};

}  // namespace tessera::kernels::attention::sm90
