// Gradients of attention: from axes to rows.
#include "axes/attention_backward.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct attention_backward_description {
  using config_type = attention_backward_config;
  using runtime_family = tessera::attention_backward_family;
  using problems = std::tuple<attention_backward_problem>;

  static constexpr bool entry_functions = true;

  static std::vector<attention_backward_axes> blocks() { return attention_backward_blocks(); }
  static constexpr budget cpu_budget{.rows = 20, .seconds = 200, .bytes = 4 << 20};
  static constexpr budget cuda_budget{
      .rows = 53, .seconds = 960, .bytes = 28 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const attention_backward_config& config) {
    if (is_cuda(config.target)) {  // those of the largest head dims take 50 s with those of 128
      if (config.head_dim == 128) return fmt::format("{}_d128", enumerator_name(config.type));
      return fmt::format("{}_{}", enumerator_name(config.type), head_dims_of_unit(config.head_dim));
    }
    return fmt::format("{}_d{}", enumerator_name(config.type),
                       config.head_dim == 0 ? "any" : std::to_string(config.head_dim));
  }
};

}  // namespace

family attention_backward_family() {
  return described_family<attention_backward_description>();
}

}  // namespace tessera::generate
