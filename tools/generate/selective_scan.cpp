// Elementwise recurrences: from axes to rows.
#include "axes/selective_scan.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct selective_scan_description {
  using config_type = selective_scan_config;
  using runtime_family = tessera::selective_scan_family;
  using problems = std::tuple<state_space_problem, rwkv4_problem>;

  static std::vector<selective_scan_axes> blocks() { return selective_scan_blocks(); }
  static constexpr budget cpu_budget{.rows = 24, .seconds = 150, .bytes = 1 << 20};
  static constexpr budget cuda_budget{
      .rows = 8, .seconds = 90, .bytes = 4 << 20, .unit_seconds = 30, .unit_mebibytes = 2048};

  static std::string unit_of(const selective_scan_config& config) {
    if (is_cuda(config.target)) return std::string(enumerator_name(config.recurrence));
    return fmt::format("{}_{}", enumerator_name(config.recurrence), enumerator_name(config.pass));
  }
};

}  // namespace

family selective_scan_family() {
  return described_family<selective_scan_description>();
}

}  // namespace tessera::generate
