// Which rows of latent attention can run which problems: rows take every type, size and option, but
// for those of a type.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<latent_attention_config> {
  static constexpr std::array rules{
      same_value<&latent_attention_config::form, &latent_attention_demand::form>("form", 2),
      same_value<&latent_attention_config::pass, &latent_attention_demand::pass>("pass"),
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "type",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || row.type == wanted.type;
              },
          .asked = [](const latent_attention_demand& wanted) noexcept -> sentence_part {
            return name_of(wanted.type);
          },
          .present = [](const latent_attention_config& row) noexcept -> sentence_part {
            return name_of(row.type);
          }},
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "latents",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                const std::int64_t rope = wanted.width - wanted.latent;
                return row.type == dtype::none || row.form != latent_form::absorbed ||
                       (wanted.latent <= widest_latent && rope <= widest_rope &&
                        wanted.latent % 8 == 0 && rope % 8 == 0);
              },
          .obstacle =
              [](const latent_attention_config&, const latent_attention_demand& wanted) {
                constexpr std::string_view takes =
                    " of a rope part, the row takes multiples of 8 up to ";
                return sentence({"latents have ", wanted.latent, " columns and ",
                                 wanted.width - wanted.latent, takes, widest_latent, " and ",
                                 widest_rope});
              }},
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "apart",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || row.form != latent_form::absorbed || !wanted.rope;
              },
          .obstacle =
              [](const latent_attention_config&, const latent_attention_demand&) {
                return std::string(
                    "latents in pages have scales, or rope parts apart, which the row has nothing "
                    "for");
              }},
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "heads",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || row.form == latent_form::absorbed ||
                       (wanted.width <= widest_key && wanted.value == dense_value);
              },
          .obstacle =
              [](const latent_attention_config&, const latent_attention_demand& wanted) {
                return sentence({"keys and values have ", wanted.width, " and ", wanted.value,
                                 " columns, the row takes up to ", widest_key, " and ",
                                 dense_value});
              }},
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "biased",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || row.form == latent_form::absorbed ||
                       !wanted.biased;
              },
          .obstacle =
              [](const latent_attention_config&, const latent_attention_demand&) {
                return std::string(
                    "scores have a bias or a mask, or weights are dropped out, which the row has "
                    "nothing for");
              }},
      fit_rule<latent_attention_config, latent_attention_demand>{
          .name = "aligned16",
          .holds =
              [](const latent_attention_config& row,
                 const latent_attention_demand& wanted) noexcept {
                return row.type == dtype::none || wanted.aligned16;
              },
          .obstacle =
              [](const latent_attention_config&, const latent_attention_demand&) {
                return std::string("rows do not start at multiples of 16 bytes");
              }},
  };
};

/// On GPUs, into how many splits keys are cut depends on how many sequences there are, also of the
/// dense kernels.
constexpr row_properties properties_of(const latent_attention_config& row) noexcept {
  if (is_cpu(row.target)) return {};
  if (row.form != latent_form::absorbed && row.type == dtype::none) return {};
  return {.batch_invariant = batch_invariance::none};
}

}  // namespace tessera
