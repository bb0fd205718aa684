// Which delta rule rows can run which problems: rows take every size and option.
#pragma once

#include <array>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<delta_rule_config> {
  static constexpr std::array rules{
      same_value<&delta_rule_config::pass, &delta_rule_demand::pass>("pass", 2),
      same_value<&delta_rule_config::type, &delta_rule_demand::type>("dtype"),
  };
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const delta_rule_config&) noexcept {
  return false;
}

}  // namespace tessera
