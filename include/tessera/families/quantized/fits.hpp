// Which rows of quantised weights can run which problems: rows take every mode, type and size.
#pragma once

#include <array>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<quantized_config> {
  static constexpr std::array rules{
      same_value<&quantized_config::pass, &quantized_demand::pass>("pass"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const quantized_config&) noexcept {
  return false;
}

}  // namespace tessera
