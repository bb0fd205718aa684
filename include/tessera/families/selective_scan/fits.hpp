// Which rows of elementwise recurrences can run which problems: rows take every type, size and
// option.
#pragma once

#include <array>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<selective_scan_config> {
  static constexpr std::array rules{
      same_value<&selective_scan_config::recurrence, &selective_scan_demand::recurrence>(
          "recurrence", 2),
      same_value<&selective_scan_config::pass, &selective_scan_demand::pass>("pass"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const selective_scan_config&) noexcept {
  return false;
}

}  // namespace tessera
