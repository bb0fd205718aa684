// The delta rule: from axes to rows.
#include "axes/delta_rule.hpp"

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/delta_rule/family.hpp>
#include <tessera/families/delta_rule/operations.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct delta_rule_description {
  using config_type = delta_rule_config;
  using runtime_family = tessera::delta_rule_family;
  using problems = std::tuple<delta_rule_problem, rwkv7_problem, ragged_delta_rule_problem,
                              ragged_delta_rule_v2_problem>;
  static constexpr std::array<std::string_view, 3> api_headers{"delta_rule", "ragged_delta_rule",
                                                               "rwkv7"};

  static std::vector<delta_rule_axes> blocks() { return delta_rule_blocks(); }
  static constexpr budget cpu_budget{.rows = 24, .seconds = 120, .bytes = 2 << 20};
  static constexpr budget cuda_budget{
      .rows = 30, .seconds = 360, .bytes = 24 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const delta_rule_config& config) {
    if (!is_cuda(config.target)) return std::string(enumerator_name(config.type));
    const bool back = config.pass == delta_rule_pass::backward;
    return fmt::format("{}_{}_{}", enumerator_name(config.type), enumerator_name(config.pass),
                       goes_by_chunks(config)
                           ? back ? fmt::format("chunk_k{}", config.key_dim) : std::string("chunk")
                       : config.key_dim <= 128 ? "to_k128"
                                               : "to_k1024");
  }
};

}  // namespace

family delta_rule_family() {
  return described_family<delta_rule_description>();
}

}  // namespace tessera::generate
