// Which delta rule rows can run which problems: rows take every option, CPU rows every size.
#pragma once

#include <array>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<delta_rule_config> {
  using config = delta_rule_config;
  using asked = delta_rule_demand;

  static constexpr std::array rules{
      same_value<&config::pass, &asked::pass>("pass", 3),
      same_value<&config::type, &asked::type>("dtype", 2),
      fit_rule<config, asked>{
          .name = "key dim",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.key_dim == 0 || wanted.sizes.key_dim <= row.key_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return wanted.sizes.key_dim;
          },
          .present = [](const config& row) noexcept -> sentence_part { return row.key_dim; }},
  };
};

}  // namespace tessera
