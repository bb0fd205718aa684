// Linear attention with decay: from axes to rows.
#include "axes/chunked_scan.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/chunked_scan/family.hpp>
#include <tessera/families/chunked_scan/operations.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct chunked_scan_description {
  using config_type = chunked_scan_config;
  using runtime_family = tessera::chunked_scan_family;
  using problems = std::tuple<recurrent_problem, rwkv6_problem>;

  static std::vector<chunked_scan_axes> blocks() { return chunked_scan_blocks(); }
  static constexpr budget cpu_budget{.rows = 24, .seconds = 100, .bytes = 5 << 19};
  static constexpr budget cuda_budget{
      .rows = 40, .seconds = 420, .bytes = 20 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  /// On GPUs kernels of all key dims share a unit, half of whose time is for headers, but gradients
  /// of bf16 by chunks, which have the most kernels.
  static std::string unit_of(const chunked_scan_config& config) {
    if (!is_cuda(config.target)) return std::string(enumerator_name(config.type));
    const bool many = goes_by_chunks(config) && config.pass == chunked_scan_pass::backward &&
                      config.type == dtype::bf16;
    return fmt::format("{}_{}{}{}", enumerator_name(config.type), enumerator_name(config.pass),
                       goes_by_chunks(config) ? "_chunk" : "",
                       many ? fmt::format("_k{}", config.key_dim) : std::string());
  }
};

}  // namespace

family chunked_scan_family() {
  return described_family<chunked_scan_description>();
}

}  // namespace tessera::generate
