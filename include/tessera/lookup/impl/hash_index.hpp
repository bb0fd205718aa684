// Where something with a hash lies: what a table finds keys and groups of keys by.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tessera::lookup_form {

/// From hashes to positions: open addressing, at most half full.
class hash_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Makes room for `count` positions; forgets those it had.
  void reset(std::size_t count) {
    slots_.assign(std::bit_ceil(std::max<std::size_t>(2 * count, 16)), {});
  }

  /// The position stored under the hash for which `same(position)` holds, or `none`.
  template <class Same>
  std::uint32_t find(std::uint64_t hash, Same same) const noexcept {
    if (slots_.empty()) return none;
    for (std::size_t at = first(hash);; at = (at + 1) & (slots_.size() - 1)) {
      const slot& candidate = slots_[at];
      if (candidate.position == none) return none;
      if (candidate.tag == tag_of(hash) && same(candidate.position)) return candidate.position;
    }
  }

  void insert(std::uint64_t hash, std::uint32_t position) noexcept {
    std::size_t at = first(hash);
    while (slots_[at].position != none) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {tag_of(hash), position};
  }

 private:
  struct slot {
    std::uint32_t tag = 0;
    std::uint32_t position = none;
  };
  static std::uint32_t tag_of(std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(hash >> 32);
  }
  std::size_t first(std::uint64_t hash) const noexcept { return hash & (slots_.size() - 1); }

  std::vector<slot> slots_;
};

}  // namespace tessera::lookup_form
