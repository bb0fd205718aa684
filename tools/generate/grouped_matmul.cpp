// Grouped matrix products: from axes to rows.
#include "axes/grouped_matmul.hpp"

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/grouped_matmul/family.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct grouped_matmul_description {
  using config_type = grouped_matmul_config;
  using runtime_family = tessera::grouped_matmul_family;
  using problems = std::tuple<grouped_matmul_problem, scaled_matmul_problem>;
  static constexpr std::array<std::string_view, 2> api_headers{"grouped_matmul", "scaled_matmul"};

  static std::vector<grouped_matmul_axes> blocks() { return grouped_matmul_blocks(); }
  static constexpr budget cpu_budget{.rows = 12, .seconds = 120, .bytes = 2 << 20};
  static constexpr budget cuda_budget{
      .rows = 20, .seconds = 330, .bytes = 16 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const grouped_matmul_config& config) {
    const std::string rows = "m" + std::to_string(resolved(config).block_m);
    if (!is_cuda(config.target) && config.type == dtype::none) return rows;
    if (config.target != backend::cuda_sm90) return std::string(enumerator_name(config.type));
    return fmt::format("{}_{}n{}", enumerator_name(config.type), rows, resolved(config).block_n);
  }
};

}  // namespace

family grouped_matmul_family() {
  return described_family<grouped_matmul_description>();
}

}  // namespace tessera::generate
