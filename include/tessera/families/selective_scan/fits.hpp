// Which rows of elementwise recurrences can run which problems: rows take every type, size and
// option.
#pragma once

#include <array>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>

namespace tessera {

template <>
struct fits_of<selective_scan_config> {
  static constexpr std::array rules{
      same_value<&selective_scan_config::recurrence, &selective_scan_demand::recurrence>(
          "recurrence", 2),
      same_value<&selective_scan_config::pass, &selective_scan_demand::pass>("pass"),
  };
};

/// On GPUs a packed sequence of one chunk gets its last state from the carry if others are longer.
constexpr row_properties properties_of(const selective_scan_config& row) noexcept {
  if (is_cpu(row.target) || row.recurrence == scan_recurrence::rwkv4) return {};
  return {.batch_invariant = batch_invariance::none};
}

}  // namespace tessera
