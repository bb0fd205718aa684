// Quantised weights: from axes to rows.
#include "axes/quantized.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct quantized_description {
  using config_type = quantized_config;
  using runtime_family = tessera::quantized_family;
  using problems = std::tuple<weight_problem, quantized_matmul_problem>;

  static std::vector<quantized_axes> blocks() { return quantized_blocks(); }
  static constexpr std::tuple axes{
      axis{"targets", &quantized_axes::targets, &quantized_config::target},
      axis{"passes", &quantized_axes::passes, &quantized_config::pass},
      axis{"types", &quantized_axes::types, &quantized_config::type}};

  static std::string unit_of(const quantized_config& config) {
    if (!is_cuda(config.target)) return std::string(enumerator_name(config.pass));
    // Both directions have kernels in common.
    if (!is_product(config.pass)) return "codes";
    return "product_" + std::string(enumerator_name(config.type));
  }
};

}  // namespace

family quantized_family() {
  family family = described_family<quantized_description>();
  family.of(device_part::cpu) = {.kernel_header = "tessera/kernels/quantized/cpu/launch.hpp",
                                 .limits = {.rows = 24, .seconds = 150, .bytes = 1 << 20}};
  family.of(device_part::cuda) = {
      .kernel_header = "tessera/kernels/quantized/sm80/launch.hpp",
      .own_headers = {{backend::cuda_sm90, "tessera/kernels/quantized/sm90/launch.hpp"}},
      .limits = {.rows = 10,
                 .seconds = 240,
                 .bytes = 16 << 20,
                 .unit_seconds = 58,
                 .unit_mebibytes = 2048}};
  return family;
}

}  // namespace tessera::generate
