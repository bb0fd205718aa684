// Where thread blocks that work on splits of the same result count themselves (arrivals.hpp), so
// that the last of them combine what all have left. Host code without any CUDA call.
//
// Scratch memory cannot hold the words: callers bring it with anything in it, and captured launches
// run again without the host. So they lie in the module's own memory, zero since it was loaded and
// ready again after every launch, and a workspace has one set of them for as long as the process
// lives: launches under way at the same time never share a workspace.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/workspace.hpp>

namespace tessera::prim::cuda {

inline constexpr int arrival_places = 128;
/// Words of a place: one for each work tile.
inline constexpr int counted_tiles = 1024;

/// Hands out places: to a workspace and a number of splits the same one for ever. (Words count in
/// rounds of the splits, so that launches which did share a workspace leave them ready all the
/// same.)
class arrival_table {
 public:
  static constexpr int most_splits = 2 * static_cast<int>(workspace_alignment);

  /// -1 if there is no place left; `splits` is at most `most_splits`.
  int place_of(const std::byte* workspace, int splits) noexcept {
    const std::uint64_t key =
        reinterpret_cast<std::uintptr_t>(workspace) * 2 + static_cast<std::uint64_t>(splits - 1);
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    for (std::uint64_t probe = 0; probe < most_probes; ++probe) {
      const auto place = static_cast<std::size_t>(((mixed >> 32) + probe) % arrival_places);
      std::uint64_t held = keys_[place].load(std::memory_order_relaxed);
      // Keys stay, so that a free place here means that the key is in none behind.
      if (held == key ||
          (held == 0 && (keys_[place].compare_exchange_strong(held, key) || held == key))) {
        return static_cast<int>(place);
      }
    }
    return -1;
  }

 private:
  static constexpr std::uint64_t most_probes = 16;
  std::array<std::atomic<std::uint64_t>, arrival_places> keys_{};
};

}  // namespace tessera::prim::cuda
