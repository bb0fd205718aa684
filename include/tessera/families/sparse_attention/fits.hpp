// Which rows of sparse attention can run which problems: rows take every type, size and
// option.
#pragma once

#include <array>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<sparse_attention_config> {
  static constexpr std::array rules{
      same_value<&sparse_attention_config::pattern, &sparse_attention_demand::pattern>("pattern",
                                                                                       2),
      same_value<&sparse_attention_config::pass, &sparse_attention_demand::pass>("pass"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const sparse_attention_config&) noexcept {
  return false;
}

}  // namespace tessera
