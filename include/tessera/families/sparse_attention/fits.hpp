// Which rows of sparse attention can run which problems. Rows of a type take it with both head dims
// of their size, those of head dim 0 with any, on GPUs at multiples of 16 bytes; rows without a
// type take everything. Blocks are selected without attention by rows of native sparse attention;
// on CPUs rows of a type have nothing for that, for it is floats.
#pragma once

#include <array>
#include <string>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<sparse_attention_config> {
  using config = sparse_attention_config;
  using asked = sparse_attention_demand;

  static constexpr std::array rules{
      same_value<&sparse_attention_config::pattern, &sparse_attention_demand::pattern>("pattern",
                                                                                       2),
      same_value<&sparse_attention_config::pass, &sparse_attention_demand::pass>("pass"),
      fit_rule<config, asked>{
          .name = "type",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.type == dtype::none || row.type == wanted.type;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return name_of(wanted.type);
          },
          .present = [](const config& row) noexcept -> sentence_part { return name_of(row.type); }},
      fit_rule<config, asked>{
          .name = "head_dim",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.head_dim == 0 || row.head_dim == wanted.head_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part { return wanted.head_dim; },
          .present = [](const config& row) noexcept -> sentence_part { return row.head_dim; }},
      fit_rule<config, asked>{
          .name = "v_head_dim",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.head_dim == 0 || row.head_dim == wanted.v_head_dim;
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part { return wanted.v_head_dim; },
          .present = [](const config& row) noexcept -> sentence_part { return row.head_dim; }},
      fit_rule<config, asked>{
          .name = "selection",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return wanted.attends || row.type == dtype::none || is_cuda(row.target);
              },
          .obstacle =
              [](const config&, const asked&) {
                return std::string(
                    "blocks are selected by products of floats; the row with a type adds nothing");
              }},
      fit_rule<config, asked>{
          .name = "alignment",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return row.head_dim == 0 || is_cpu(row.target) || wanted.aligned16;
              },
          .obstacle =
              [](const config& row, const asked&) {
                const bool forward = row.pass == sparse_pass::forward;
                return std::string(forward ? "q, k, v" : "q, k, v, out, d_out") +
                       ": not every row starts at a multiple of 16 bytes, which the row needs";
              }},
  };
};

/// Of the dense forward kernels of sm80: how keys are split over blocks depends on how many there
/// are. Of native sparse attention of sm90: whether tokens share blocks depends on how many there
/// are in all packed sequences.
constexpr row_properties properties_of(const sparse_attention_config& row) noexcept {
  const bool dense = row.pattern == sparse_pattern::blocksparse &&
                     row.pass == sparse_pass::forward && row.type != dtype::none;
  const bool shares = row.pattern == sparse_pattern::native_sparse;
  if ((row.target == backend::cuda_sm80 && dense) || (row.target == backend::cuda_sm90 && shares)) {
    return {.batch_invariant = batch_invariance::none};
  }
  return {};
}

}  // namespace tessera
