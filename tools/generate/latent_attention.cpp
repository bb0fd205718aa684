// Latent attention: from axes to rows.
#include "axes/latent_attention.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct latent_attention_description {
  using config_type = latent_attention_config;
  using runtime_family = tessera::latent_attention_family;
  using problems = std::tuple<flash_mla_problem, flash_mla_decode_problem, deepseek_attn_problem,
                              latent_ragged_problem>;

  static std::vector<latent_attention_axes> blocks() { return latent_attention_blocks(); }
  static constexpr budget cpu_budget{.rows = 18, .seconds = 180, .bytes = 2 << 20};
  static constexpr budget cuda_budget{
      .rows = 13, .seconds = 240, .bytes = 14 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};

  static std::string unit_of(const latent_attention_config& config) {
    if (config.type != dtype::none) {
      const bool over_pages = config.form == latent_form::absorbed;
      return fmt::format("{}{}", over_pages ? "" : fmt::format("{}_", enumerator_name(config.form)),
                         enumerator_name(config.type));
    }
    // On GPUs the rows of a direction are the same kernels in another order.
    if (is_cuda(config.target)) return fmt::format("{}", enumerator_name(config.pass));
    return fmt::format("{}_{}", enumerator_name(config.form), enumerator_name(config.pass));
  }
};

}  // namespace

family latent_attention_family() {
  return described_family<latent_attention_description>();
}

}  // namespace tessera::generate
