// Which rows of latent attention can run which problems: rows take every type, size and option, but
// for those of a type.
#pragma once

#include <array>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<latent_attention_config> {
  static constexpr std::array rules{
      same_value<&latent_attention_config::form, &latent_attention_demand::form>("form", 2),
      same_value<&latent_attention_config::pass, &latent_attention_demand::pass>("pass"),
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "type",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || row.type == wanted.type;
              },
          .asked = [](const latent_attention_demand& wanted) noexcept -> sentence_part {
            return name_of(wanted.type);
          },
          .present = [](const latent_attention_config& row) noexcept -> sentence_part {
            return name_of(row.type);
          }},
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const latent_attention_config&) noexcept {
  return false;
}

}  // namespace tessera
