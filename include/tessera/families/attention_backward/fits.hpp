// Which rows of the gradients of attention can run which problems.
#pragma once

#include <array>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

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
                 return row.head_dim == 0 || row.head_dim == wanted.scores.sizes.v_head_dim;
               },
           .asked = [](const asked& wanted) noexcept -> sentence_part {
             return wanted.scores.sizes.v_head_dim;
           },
           .present = [](const config& row) noexcept -> sentence_part { return row.head_dim; }},
  };
};

/// True for rows that take head dims as they come: the last resort of a backend.
constexpr bool is_generic(const attention_backward_config& config) noexcept {
  return config.head_dim == 0;
}

}  // namespace tessera
