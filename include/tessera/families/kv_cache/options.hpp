// Options of the operations on caches of keys and values, under the names that tools and files use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// The axes of a pool of pages, outermost first: P page, H key/value head, T token, D head dim; C
/// channel, keys and values of a head side by side; CL channels in groups of L lanes. PT_HD, called
/// "(PT)HD": pages and tokens are one axis, of slots.
enum class cache_layout : std::uint8_t { PHTD, HPTD, PTHD, PT_HD, PTCD, PTCLD };
inline constexpr std::array<std::string_view, 6> cache_layout_names{"PHTD",   "HPTD", "PTHD",
                                                                    "(PT)HD", "PTCD", "PTCLD"};

struct kv_cache_options {
  /// What is stored is x / scale. Above 0.
  double k_scale = 1;
  double v_scale = 1;
  cache_layout pool_layout = cache_layout::PHTD;
  /// Tokens of a page of a (PT)HD pool. Other pools have an axis that says it: 0.
  std::int64_t page_size = 0;

  friend bool operator==(const kv_cache_options&, const kv_cache_options&) = default;
};

}  // namespace tessera
