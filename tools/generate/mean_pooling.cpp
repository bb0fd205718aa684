// Mean pooling: from axes to rows.
#include "axes/mean_pooling.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct mean_pooling_description {
  using config_type = mean_pooling_config;
  using runtime_family = tessera::mean_pooling_family;
  using problems = std::tuple<mean_pooling_problem>;

  static std::vector<mean_pooling_axes> blocks() { return mean_pooling_blocks(); }
  static constexpr budget cpu_budget{.rows = 48, .seconds = 60, .bytes = 1 << 20};
  static constexpr budget cuda_budget{
      .rows = 16, .seconds = 120, .bytes = 8 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const mean_pooling_config& config) {
    return std::string(enumerator_name(config.type));
  }
};

}  // namespace

family mean_pooling_family() {
  return described_family<mean_pooling_description>();
}

}  // namespace tessera::generate
