// Which rows of latent attention can run which problems: rows take every type, size and option.
#pragma once

#include <array>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<latent_attention_config> {
  static constexpr std::array rules{
      same_value<&latent_attention_config::form, &latent_attention_demand::form>("form", 2),
      same_value<&latent_attention_config::pass, &latent_attention_demand::pass>("pass"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const latent_attention_config&) noexcept {
  return false;
}

}  // namespace tessera
