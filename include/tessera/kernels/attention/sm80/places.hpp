// Where blocks that work on splits of the same keys count themselves, so that the last of them
// merge what all have left. Host code without any CUDA call; the words are in sm80_arrivals.hpp.
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

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/prim/common/workspace.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int arrival_places = 128;
/// Words of a place: one for each block of rows.
inline constexpr int most_counted_items = 1024;

/// Hands out places: to a workspace and a number of splits the same one for ever. (Words count in
/// rounds of the splits, so that launches which did share a workspace leave them ready all the
/// same.)
class arrival_table {
 public:
  /// -1 if there is no place left.
  int place_of(const std::byte* workspace, int splits) noexcept {
    static_assert(schedule_sm80::most_splits <= 2 * prim::workspace_alignment);
    const std::uint64_t key =
        reinterpret_cast<std::uintptr_t>(workspace) * 2 + static_cast<std::uint64_t>(splits - 1);
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    for (std::uint64_t probe = 0; probe < most_probes; ++probe) {
      const auto place = static_cast<std::size_t>(((mixed >> 32) + probe) % arrival_places);
      std::uint64_t found = keys_[place].load(std::memory_order_relaxed);
      // Keys stay, so that a free place here means that the key is in none behind.
      if (found == key ||
          (found == 0 && (keys_[place].compare_exchange_strong(found, key) || found == key))) {
        return static_cast<int>(place);
      }
    }
    return -1;
  }

 private:
  static constexpr std::uint64_t most_probes = 16;
  std::array<std::atomic<std::uint64_t>, arrival_places> keys_{};
};

}  // namespace tessera::kernels::attention::sm80
