// How many heads launches in turns go through together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// Heads of a section. What they read and add to stays in the second-level cache, for all blocks of
/// a head go through it. But a block of a head begins only once the one before it has added to its
/// first tile, so that of one head no more run side by side than have tiles to go through: few
/// behind a window, which takes more heads (`Tiles::turns_apart`: tiles that blocks are apart).
/// With two blocks on a multiprocessor one or two heads are too few, even where four leave the
/// cache.
template <class Tiles>
int section_of(const attention_kernel_args& of) {
  constexpr std::int64_t cached = std::int64_t{32} << 20, most = 64;
  constexpr std::int64_t least = Tiles::threads > 128 ? 1 : 4;
  // Of an H200, with one or two blocks on a multiprocessor.
  constexpr double blocks_side_by_side = Tiles::threads > 128 ? 132 : 264;
  const std::int64_t group = of.kv_heads > 0 ? of.q_heads / of.kv_heads : 1;
  const std::int64_t bytes =
      std::max<std::int64_t>(of.q_len * group * (Tiles::width * 6 + Tiles::value_width * 2), 1);
  const bool packed = of.cu_seqlens_q != nullptr;
  const std::int64_t parts = packed ? std::max<std::int64_t>(of.batch, 1) : 1;
  const std::int64_t rows = of.q_len / parts, keys = std::max<std::int64_t>(of.kv_len / parts, 1);
  if (of.window_left == unbounded || of.window_left >= keys / 4) {  // hides too little
    return static_cast<int>(std::clamp(cached / bytes, least, most));
  }
  const prim::mask_interval mask{of.causal, of.window_left, of.window_right,
                                 of.top_left ? 0 : keys - rows};
  const double rows_of_key =
      mask.mean_keys(rows, keys) * static_cast<double>(rows * group) / static_cast<double>(keys);
  const double tiles = 1 + rows_of_key / Tiles::queries;
  const auto busy =
      static_cast<std::int64_t>(std::ceil(blocks_side_by_side * Tiles::turns_apart / tiles));
  return static_cast<int>(std::clamp(std::max(cached / bytes, busy), least, most));
}

}  // namespace tessera::kernels::attention_backward::sm80
