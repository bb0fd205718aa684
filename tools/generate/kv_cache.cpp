// Caches of keys and values: from axes to rows.
#include "axes/kv_cache.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <tessera/families/kv_cache/declaration.hpp>
#include <tessera/families/kv_cache/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct kv_cache_description {
  using config_type = kv_cache_config;
  using runtime_family = tessera::kv_cache_family;
  using problems = std::tuple<kv_cache_problem>;

  static std::vector<kv_cache_axes> blocks() { return kv_cache_blocks(); }
  static constexpr budget cpu_budget{.rows = 8, .seconds = 30, .bytes = 1 << 20};
  static constexpr budget cuda_budget{
      .rows = 4, .seconds = 60, .bytes = 4 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const kv_cache_config& config) {
    return std::string(enumerator_name(config.pass));
  }
};

}  // namespace

family kv_cache_family() {
  return described_family<kv_cache_description>();
}

}  // namespace tessera::generate
