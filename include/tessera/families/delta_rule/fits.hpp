// Which delta rule rows can run which problems: rows that go token by token take every option, CPU
// rows every size.
#pragma once

#include <array>
#include <string>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/recurrent_fits.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<delta_rule_config> {
  using config = delta_rule_config;
  using asked = delta_rule_demand;

  static constexpr std::array rules{
      same_value<&config::pass, &asked::pass>("pass", 3),
      same_value<&config::type, &asked::type>("dtype", 2),
      fit_rule<config, asked>{
          .name = "key dim",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.key_dim == 0 || wanted.sizes.key_dim <= row.key_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return wanted.sizes.key_dim;
          },
          .present = [](const config& row) noexcept -> sentence_part { return row.key_dim; }},
      fit_rule<config, asked>{
          .name = "tokens",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) ||
                       (wanted.plain && (row.target == backend::cuda_sm90 ||
                                         wanted.decay != delta_rule_decay::channel));
              },
          .obstacle =
              [](const config&, const asked& wanted) {
                return std::string(
                    wanted.plain
                        ? "decays are those of channels, the row has chunks for decays of heads"
                        : "tokens are low-rank updates, segments, activated or with negative "
                          "eigenvalues, the row has chunks for tokens as they are");
              }},
      chunks_are_of_aligned_rows<config, asked>,
  };
};

}  // namespace tessera
