// Which rows of fused losses can run which problems: rows take every size and option, and of
// operands of a product on a GPU those that they multiply.
#pragma once

#include <array>
#include <string>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<losses_config> {
  using config = losses_config;
  using asked = losses_demand;

  static constexpr fit_rule<config, asked> operands{
      .name = "operands",
      .distance = 2,
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            return row.type == dtype::none || row.type == dtype::f32 || row.type == wanted.type;
          },
      .obstacle =
          [](const config& row, const asked& wanted) {
            return sentence({"operands are ", name_of(wanted.type), ", the row multiplies ",
                             name_of(row.type)});
          }};
  static constexpr fit_rule<config, asked> alignment{
      .name = "alignment",
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            return wanted.aligned || row.target != backend::cuda_sm90;
          },
      .obstacle = [](const config&, const asked&) -> std::string {
        return "lm_head_weight: not every row starts at a multiple of 16 bytes, which the row "
               "needs";
      }};
  static constexpr std::array rules{
      same_value<&losses_config::loss, &losses_demand::loss>("loss", 2),
      same_value<&losses_config::pass, &losses_demand::pass>("pass"),
      operands,
      alignment,
  };
};

/// The number of tokens decides how many classes a product on a GPU has at a time.
constexpr row_properties properties_of(const losses_config& row) noexcept {
  if (is_cpu(row.target) || row.loss != loss_kind::linear_cross_entropy) return {};
  return {.batch_invariant = batch_invariance::none};
}

}  // namespace tessera
