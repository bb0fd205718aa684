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
  static constexpr std::tuple axes{
      axis{"targets", &mean_pooling_axes::targets, &mean_pooling_config::target},
      axis{"types", &mean_pooling_axes::types, &mean_pooling_config::type},
      axis{"passes", &mean_pooling_axes::passes, &mean_pooling_config::pass},
      axis{"numbers of streams", &mean_pooling_axes::streams, &mean_pooling_config::streams},
      axis{"kinds of stores", &mean_pooling_axes::stores, &mean_pooling_config::stores}};

  static std::string unit_of(const mean_pooling_config& config) {
    return std::string(enumerator_name(config.type));
  }
};

}  // namespace

family mean_pooling_family() {
  family family = described_family<mean_pooling_description>();
  family.of(device_part::cpu) = {.kernel_header = "tessera/kernels/mean_pooling/cpu/launch.hpp",
                                 .limits = {.rows = 48, .seconds = 60, .bytes = 1 << 20}};
  family.of(device_part::cuda) = {.kernel_header = "tessera/kernels/mean_pooling/sm80/launch.hpp",
                                  .limits = {.rows = 16,
                                             .seconds = 120,
                                             .bytes = 8 << 20,
                                             .unit_seconds = 60,
                                             .unit_mebibytes = 3072}};
  return family;
}

}  // namespace tessera::generate
