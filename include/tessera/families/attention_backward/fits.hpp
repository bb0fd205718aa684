// Which rows of the gradients of attention can run which problems.
#pragma once

#include <array>
#include <string>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>

namespace tessera {

/// CUDA rows of one head dim: of 16-byte copies and the matrix unit.
constexpr bool uses_matrix_unit(const attention_backward_config& config) noexcept {
  return is_cuda(config.target) && config.head_dim != 0;
}

/// Gradients come into the weights themselves.
constexpr bool takes_weights(const attention_backward_demand& wanted) noexcept {
  return wanted.scores.features.has(attention_feature::weights);
}

template <>
struct fits_of<attention_backward_config> {
  using config = attention_backward_config;
  using asked = attention_backward_demand;
  using rule = fit_rule<config, asked>;

  static constexpr std::array rules{
      same_value<&config::type, &asked::type>("dtype", 8),
      rule{.name = "head_dim",
           .distance = 4,
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return row.head_dim == 0 || row.head_dim == wanted.scores.sizes.head_dim;
               },
           .asked = [](const asked& wanted) noexcept -> sentence_part {
             return wanted.scores.sizes.head_dim;
           },
           .present = [](const config& row) noexcept -> sentence_part { return row.head_dim; }},
      rule{.name = "v_head_dim",
           .distance = 3,
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return row.head_dim == 0 || row.v_head_dim == wanted.scores.sizes.v_head_dim;
               },
           .asked = [](const asked& wanted) noexcept -> sentence_part {
             return wanted.scores.sizes.v_head_dim;
           },
           .present = [](const config& row) noexcept -> sentence_part { return row.v_head_dim; }},
      rule{.name = "features",
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return !uses_matrix_unit(row) ||
                        (!wanted.bias_gradients && !takes_weights(wanted));
               },
           .obstacle = [](const config&, const asked& wanted) -> std::string {
             return std::string(wanted.bias_gradients ? "d_bias" : "d_weights") +
                    " is asked for, which only rows of any head_dim take";
           }},
      rule{.name = "alignment",
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return wanted.scores.aligned16 || !uses_matrix_unit(row);
               },
           .obstacle = [](const config&, const asked&) -> std::string {
             return "q, k, v, out, d_out: not every row starts at a multiple of 16 bytes, which "
                    "the row needs";
           }},
  };
};

/// True for rows that take head dims as they come: the last resort of a backend.
constexpr bool is_generic(const attention_backward_config& config) noexcept {
  return config.head_dim == 0;
}

/// Sums of d_q in memory have no order, but of blocks in turns.
constexpr row_properties properties_of(const attention_backward_config& config) noexcept {
  if (!config.d_q_atomics || config.in_turns) return {};
  return {determinism::none, batch_invariance::none};
}

}  // namespace tessera
