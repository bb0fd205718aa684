// Which rows of linear attention with decay can run which problems: rows take every size and decay.
#pragma once

#include <array>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<chunked_scan_config> {
  static constexpr std::array rules{
      same_value<&chunked_scan_config::pass, &chunked_scan_demand::pass>("pass", 2),
      same_value<&chunked_scan_config::type, &chunked_scan_demand::type>("dtype"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const chunked_scan_config&) noexcept {
  return false;
}

}  // namespace tessera
