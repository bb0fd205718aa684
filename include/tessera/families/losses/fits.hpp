// Which rows of fused losses can run which problems: rows take every type, size and option.
#pragma once

#include <array>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<losses_config> {
  static constexpr std::array rules{
      same_value<&losses_config::loss, &losses_demand::loss>("loss", 2),
      same_value<&losses_config::pass, &losses_demand::pass>("pass"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const losses_config&) noexcept {
  return false;
}

}  // namespace tessera
