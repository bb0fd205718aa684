// The delta rule: from axes to rows.
#include "axes/delta_rule.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <tessera/families/delta_rule/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct description {
  using config_type = delta_rule_config;
  using runtime_family = tessera::delta_rule_family;
  static constexpr const auto& names = delta_rule_names;

  static std::vector<delta_rule_axes> blocks() { return delta_rule_blocks(); }
  static constexpr std::tuple axes{
      axis{"targets", &delta_rule_axes::targets, &delta_rule_config::target},
      axis{"types", &delta_rule_axes::types, &delta_rule_config::type},
      axis{"passes", &delta_rule_axes::passes, &delta_rule_config::pass},
      axis{"chunks", &delta_rule_axes::chunks, &delta_rule_config::chunk},
      axis{"columns of a tile", &delta_rule_axes::columns, &delta_rule_config::columns}};

  static std::string unit_of(const delta_rule_config& config) {
    return std::string(enumerator_name(config.type));
  }
};

}  // namespace

family delta_rule_family() {
  family made = described_family<description>();
  made.of(device_part::cpu) = {.kernel_header = "tessera/kernels/delta_rule/cpu/launch.hpp",
                               .limits = {.rows = 24, .seconds = 120, .bytes = 2 << 20}};
  return made;
}

}  // namespace tessera::generate
