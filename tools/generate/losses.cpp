// Fused losses: from axes to rows.
#include "axes/losses.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct losses_description {
  using config_type = losses_config;
  using runtime_family = tessera::losses_family;
  using problems =
      std::tuple<cross_entropy_problem, kl_divergence_problem, linear_cross_entropy_problem>;

  static std::vector<losses_axes> blocks() { return losses_blocks(); }
  static constexpr budget cpu_budget{.rows = 24, .seconds = 150, .bytes = 1 << 20};
  static constexpr budget cuda_budget{
      .rows = 12, .seconds = 120, .bytes = 6 << 20, .unit_seconds = 60, .unit_mebibytes = 2048};

  static std::string unit_of(const losses_config& config) {
    if (!is_cuda(config.target)) {
      return fmt::format("{}_{}", enumerator_name(config.loss), enumerator_name(config.pass));
    }
    // Both directions have kernels in common.
    if (config.type == dtype::none) return std::string(enumerator_name(config.loss));
    return fmt::format("{}_{}", enumerator_name(config.loss), enumerator_name(config.type));
  }
};

}  // namespace

family losses_family() {
  return described_family<losses_description>();
}

}  // namespace tessera::generate
