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
  static constexpr std::tuple axes{
      axis{"targets", &latent_attention_axes::targets, &latent_attention_config::target},
      axis{"forms", &latent_attention_axes::forms, &latent_attention_config::form},
      axis{"passes", &latent_attention_axes::passes, &latent_attention_config::pass},
      axis{"types", &latent_attention_axes::types, &latent_attention_config::type}};

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
  family family = described_family<latent_attention_description>();
  family.of(device_part::cpu) = {.kernel_header = "tessera/kernels/latent_attention/cpu/launch.hpp",
                                 .limits = {.rows = 18, .seconds = 180, .bytes = 3 << 19}};
  family.of(device_part::cuda) = {
      .kernel_header = "tessera/kernels/latent_attention/sm80/launch.hpp",
      .own_headers = {{backend::cuda_sm90, "tessera/kernels/latent_attention/sm90/launch.hpp"}},
      .limits = {.rows = 13,
                 .seconds = 240,
                 .bytes = 7 << 20,
                 .unit_seconds = 60,
                 .unit_mebibytes = 3072}};
  return family;
}

}  // namespace tessera::generate
