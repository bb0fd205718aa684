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
  static constexpr budget cpu_budget{.rows = 24, .seconds = 150, .bytes = 1 << 20};
  static constexpr budget cuda_budget{
      .rows = 10, .seconds = 240, .bytes = 16 << 20, .unit_seconds = 60, .unit_mebibytes = 2048};

  static std::string unit_of(const quantized_config& config) {
    if (!is_cuda(config.target)) return std::string(enumerator_name(config.pass));
    // Both directions have kernels in common.
    if (!is_product(config.pass)) return "codes";
    return "product_" + std::string(enumerator_name(config.type));
  }
};

}  // namespace

family quantized_family() {
  return described_family<quantized_description>();
}

}  // namespace tessera::generate
