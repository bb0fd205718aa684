// Which delta rule rows can run which problems: rows that go token by token take every option, CPU
// rows every size.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/recurrent_fits.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<delta_rule_config> {
  using config = delta_rule_config;
  using asked = delta_rule_demand;

  /// Of a key, for rows that go by chunks. Operands of theirs are rounded to 16 bits: written
  /// values, weights of pairs, rows with decays in them. Keys of few channels are alike, so that
  /// each token meets the rounding of many others: those of 3 channels are off by up to 0.03 of
  /// what states hold, of 16 by 0.015, of 32 by 0.008.
  static constexpr std::int64_t fewest_chunk_keys = 16;

  /// Of rows that go by chunks.
  static constexpr bool takes_channels(const config& row) noexcept {
    return row.target == backend::cuda_sm90 || row.pass == delta_rule_pass::backward;
  }

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
          .name = "fewest keys",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || wanted.sizes.key_dim >= fewest_chunk_keys;
              },
          .obstacle =
              [](const config&, const asked& wanted) {
                return sentence({"key dim is ", wanted.sizes.key_dim,
                                 ", the row has chunks for at least ", fewest_chunk_keys,
                                 ": keys of few channels add up their roundings"});
              }},
      fit_rule<config, asked>{
          .name = "tokens",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) ||
                       (wanted.plain &&
                        (wanted.decay != delta_rule_decay::channel || takes_channels(row)) &&
                        (!wanted.low_rank || row.target == backend::cuda_sm90));
              },
          .obstacle =
              [](const config&, const asked& wanted) {
                if (!wanted.plain) {
                  return std::string(
                      "tokens are in segments, activated or with negative eigenvalues, the row has "
                      "chunks for tokens as they are");
                }
                return std::string(
                    wanted.low_rank
                        ? "tokens are low-rank updates, the row has chunks for the delta rule: "
                          "forward rows of cuda_sm90 have both"
                        : "decays are those of channels, the row has chunks for decays of heads: "
                          "rows of cuda_sm90 forward and of gradients have both");
              }},
      fit_rule<config, asked>{
          .name = "value dim",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || row.pass == delta_rule_pass::forward ||
                       wanted.sizes.value_dim <= row.key_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return wanted.sizes.value_dim;
          },
          .present = [](const config& row) noexcept -> sentence_part { return row.key_dim; }},
      chunks_are_of_aligned_rows<config, asked>,
  };
};

}  // namespace tessera
