// The cache lines of the next tile of latents, asked for a few at a time beside the products of
// this one. Beside prim::line_queue, which goes row by row: latents lie in long runs, of a whole
// page if nothing is between them: asked for in the order of memory the hardware's prefetcher goes
// ahead, and no row has to be looked up for each line.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::latent_attention::cpu {

class latent_lines {
 public:
  /// `bytes` bytes from `data` on. Beyond `most_runs` runs nothing is kept.
  void add(const void* data, std::int64_t bytes) {
    const char* const begin = static_cast<const char*>(data);
    const bool follows = runs_ > 0 && begin == ends_[runs_ - 1];
    if (!follows && runs_ == most_runs) return;
    if (!follows) begins_[runs_++] = begin;
    ends_[runs_ - 1] = begin + bytes;
    lines_ += static_cast<int>((bytes + line_bytes - 1) / line_bytes);
  }

  /// Spreads what is there over `steps` calls of `step`.
  void spread(int steps) { each_step_ = steps > 0 ? (lines_ + steps - 1) / steps : 0; }

  TESSERA_INLINE void step() {
    for (std::int64_t left = each_step_; left > 0 && run_ < runs_;) {
      const char *at = begins_[run_], *const end = ends_[run_];
      for (; left > 0 && at < end; --left, at += line_bytes) TESSERA_PREFETCH_L2(at);
      begins_[run_] = at;
      if (at >= end) ++run_;
    }
  }

 private:
  static constexpr int line_bytes = 64;
  static constexpr int most_runs = 2 * latent_schedule::block_keys;
  const char *begins_[most_runs], *ends_[most_runs];
  int runs_ = 0;
  int run_ = 0;    ///< next to be asked for
  int lines_ = 0;  ///< of all runs
  int each_step_ = 0;
};

}  // namespace tessera::kernels::latent_attention::cpu
