// Which rows of linear attention with decay can run which problems: rows that go token by token
// take every decay, CPU rows every size.
#pragma once

#include <array>
#include <string>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/recurrent_fits.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<chunked_scan_config> {
  using config = chunked_scan_config;
  using asked = chunked_scan_demand;

  static constexpr std::array rules{
      same_value<&config::pass, &asked::pass>("pass", 3),
      same_value<&config::type, &asked::type>("dtype", 2),
      fit_rule<config, asked>{
          .name = "key dim",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.key_dim == 0 || wanted.keys <= row.key_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part { return wanted.keys; },
          .present = [](const config& row) noexcept -> sentence_part { return row.key_dim; }},
      fit_rule<config, asked>{
          .name = "decay",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || wanted.decay != chunked_scan_decay::keys_and_values;
              },
          .obstacle =
              [](const config&, const asked&) {
                return std::string("values decay too, the row has chunks for decays of keys");
              }},
      fit_rule<config, asked>{
          .name = "decay of channels",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || !wanted.channels || row.type == dtype::bf16;
              },
          .obstacle =
              [](const config&, const asked&) {
                return std::string(
                    "channels decay by themselves, the row's chunks of f16 have decays of heads: "
                    "rows times decays of up to 2^64 leave its range");
              }},
      fit_rule<config, asked>{
          .name = "gradients of decays",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || !wanted.decay_gradients || row.type == dtype::bf16;
              },
          .obstacle =
              [](const config&, const asked&) {
                return std::string(
                    "gradients of decays are wanted, the row's chunks of f16 keep no states for "
                    "them: those leave its range");
              }},
      fit_rule<config, asked>{
          .name = "gradients of decays of heads",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.target != backend::cuda_sm90 || row.pass == chunked_scan_pass::forward ||
                       wanted.channels || !wanted.decay_gradients;
              },
          .obstacle =
              [](const config&, const asked&) {
                return std::string(
                    "gradients of decays of heads are wanted, the row has those of decays of "
                    "channels: those of cuda_sm80 have both");
              }},
      fit_rule<config, asked>{.name = "bonus",
                              .distance = 1,
                              .holds =
                                  [](const config& row, const asked& wanted) noexcept {
                                    return !goes_by_chunks(row) || !wanted.bonus ||
                                           row.target == backend::cuda_sm80;
                                  },
                              .obstacle =
                                  [](const config&, const asked&) {
                                    return std::string(
                                        "tokens have a bonus, which the row's chunks have not: "
                                        "those of cuda_sm80 have");
                                  }},
      fit_rule<config, asked>{
          .name = "value dim",
          .distance = 1,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !goes_by_chunks(row) || row.pass == chunked_scan_pass::forward ||
                       wanted.values <= row.key_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part { return wanted.values; },
          .present = [](const config& row) noexcept -> sentence_part { return row.key_dim; }},
      chunks_are_of_aligned_rows<config, asked>,
  };
};

}  // namespace tessera
