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
  static constexpr std::tuple axes{
      axis{"targets", &grouped_matmul_axes::targets, &grouped_matmul_config::target},
      axis{"types", &grouped_matmul_axes::types, &grouped_matmul_config::type},
      axis{"rows of a tile", &grouped_matmul_axes::block_m, &grouped_matmul_config::block_m},
      axis{"columns of a tile", &grouped_matmul_axes::block_n, &grouped_matmul_config::block_n},
      axis{"blocks of the summed axis", &grouped_matmul_axes::block_k,
           &grouped_matmul_config::block_k}};

  static std::string unit_of(const grouped_matmul_config& config) {
    const std::string rows = "m" + std::to_string(resolved(config).block_m);
    if (!is_cuda(config.target) && config.type == dtype::none) return rows;
    if (config.target != backend::cuda_sm90) return std::string(enumerator_name(config.type));
    return fmt::format("{}_{}n{}", enumerator_name(config.type), rows, resolved(config).block_n);
  }
};

}  // namespace

family grouped_matmul_family() {
  family family = described_family<grouped_matmul_description>();
  family.of(device_part::cpu) = {.kernel_header = "tessera/kernels/grouped_matmul/cpu/launch.hpp",
                                 .limits = {.rows = 12, .seconds = 120, .bytes = 2 << 20}};
  family.of(device_part::cuda) = {
      .kernel_header = "tessera/kernels/grouped_matmul/sm80/launch.hpp",
      .own_headers = {{backend::cuda_sm90, "tessera/kernels/grouped_matmul/sm90/launch.hpp"}},
      .limits = {.rows = 20,
                 .seconds = 330,
                 .bytes = 14 << 20,
                 .unit_seconds = 60,
                 .unit_mebibytes = 3072}};
  return family;
}

}  // namespace tessera::generate
