// Which rows of fused losses can run which problems: rows take every size and option, and of
// operands of a product on a GPU those that they multiply.
#pragma once

#include <array>
#include <string>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<losses_config> {
  using config = losses_config;
  using asked = losses_demand;

  static constexpr fit_rule<config, asked> operands{
      .name = "operands",
      .distance = 2,
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            return row.type == dtype::none || row.type == dtype::f32 || row.type == wanted.type;
          },
      .obstacle =
          [](const config& row, const asked& wanted) {
            return sentence({"operands are ", name_of(wanted.type), ", the row multiplies ",
                             name_of(row.type)});
          }};
  static constexpr std::array rules{
      same_value<&losses_config::loss, &losses_demand::loss>("loss", 2),
      same_value<&losses_config::pass, &losses_demand::pass>("pass"),
      operands,
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const losses_config&) noexcept {
  return false;
}

}  // namespace tessera
